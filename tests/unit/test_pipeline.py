"""Windows -> charts, mix, step times and views: one engine's life, told in windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from specdrift.core import loop as loops
from specdrift.core.detector import ChartPhase, DetectorConfig
from specdrift.core.engines.model import SpecCounters
from specdrift.core.loop import Decision, Kind
from specdrift.core.pipeline import (
    OFF_KEY,
    AlarmRecord,
    Context,
    PipelineState,
    class_views,
    current_benefit,
    current_point,
    ingest,
    mix_change,
    recent_rows,
    reference,
)
from specdrift.core.policy import Mode
from specdrift.core.windows import ClassWindow, Window, WindowState
from tests.support.facts import AS_FOUND_CONFIG, RULES, facts

K = 3
HOME = f"eagle3:{K}"
CONTEXT = Context(
    DetectorConfig(86400.0, 0.05, 45.0, 1.0, charts=2), config_key=None, home_key=HOME
)
BOTH = {"chat": (100.0, 0.7), "code": (100.0, 0.4)}


@dataclass
class Engine:
    """Makes one window a second; classes are name -> (drafts, acceptance)."""

    rng: np.random.Generator
    time: float = 0.0
    sd: float = 0.015
    windows: list[Window] = field(default_factory=list)

    def window(
        self,
        classes: Mapping[str, tuple[float, float]],
        *,
        kind: WindowState = WindowState.OK,
        k: int = K,
        method: str | None = "eagle3",
        step: float = 0.02,
        named: bool = True,
        instance: str = "a",
    ) -> Window:
        parts = []
        for name, (mean, level) in classes.items():
            size = max(level * (1 - level) / self.sd**2 - 1, 1.0)
            p = self.rng.beta(level * size, (1 - level) * size)
            drafts = float(self.rng.poisson(mean) + 1)
            accepted = float(self.rng.binomial(int(drafts) * k, p))
            positions = tuple(accepted / k for _ in range(k))
            parts.append(
                ClassWindow(name, k, SpecCounters(drafts, drafts * k, accepted, positions))
            )
        drafts = sum(c.spec.drafts for c in parts)
        accepted = sum(c.spec.accepted_tokens for c in parts)
        steps = max(drafts, 1.0)
        outputs = {c.traffic_class: c.spec.drafts for c in parts} or {"chat": 0.0, "code": 0.0}
        off = kind is WindowState.SPECULATION_OFF
        return Window(
            instance,
            self.time,
            self.time + 1.0,
            kind,
            model_name="llama",
            method=None if off else method,
            num_speculative_tokens=None if off else k,
            spec=None if off else SpecCounters(drafts, drafts * k, accepted, (accepted / k,) * k),
            by_class=tuple(parts) if named and not off else (),
            class_output_tokens=outputs if named else {},
            generation_tokens=steps + (0.0 if off else accepted),
            first_tokens=0.0,
            steps=steps / 8.0,
            request_steps=steps,
            request_step_seconds=steps * step,
            running=8.0,
        )

    def run(
        self,
        state: PipelineState,
        seconds: int,
        classes: Mapping[str, tuple[float, float]],
        *,
        context: Context = CONTEXT,
        **window: object,
    ) -> tuple[PipelineState, list[AlarmRecord]]:
        found: list[AlarmRecord] = []
        for _ in range(seconds):
            made = self.window(classes, **window)  # type: ignore[arg-type]
            state, alarms = ingest(state, [made], context)
            found.extend(alarms)
            self.time += 1.0
        return state, found


@pytest.fixture(scope="module")
def learned() -> tuple[PipelineState, float]:
    """Both classes just out of Phase I; solving for thresholds is not timed."""
    engine = Engine(np.random.default_rng(40))
    state, found = engine.run(PipelineState(), 46, BOTH)
    assert found == []
    return state, engine.time


@pytest.fixture
def engine(learned: tuple[PipelineState, float]) -> Engine:
    return Engine(np.random.default_rng(41), learned[1])


@pytest.fixture
def state(learned: tuple[PipelineState, float]) -> PipelineState:
    return learned[0]


def kinds(found: Iterable[AlarmRecord]) -> list[tuple[str, str, str]]:
    return [(a.traffic_class, a.signal.side.value, a.cause) for a in found]


def test_each_class_has_its_chart(state: PipelineState) -> None:
    assert set(state.charts) == {f"chat|{HOME}", f"code|{HOME}"}
    for name, level in (("chat", 0.7), ("code", 0.4)):
        baseline = state.charts[f"{name}|{HOME}"].baseline
        assert baseline is not None
        assert baseline.acceptance == pytest.approx(level, abs=0.015)
    assert state.alarms == {}


def test_drift_within_a_class_names_the_class(state: PipelineState, engine: Engine) -> None:
    state, found = engine.run(state, 30, {"chat": (100, 0.7), "code": (100, 0.2)})
    assert kinds(found) == [("code", "drop", "content_drift")]
    assert "1 of 2 classes changed, 1 did not" in found[0].evidence
    assert found[0].config_key == HOME
    views = {v.traffic_class: v for v in class_views(state, HOME, 0.05)}
    assert views["chat"].side is None
    assert views["code"].side == "drop"
    assert views["code"].effect == pytest.approx(-0.2, abs=0.03)
    assert views["code"].windows_since_alarm > 8
    assert views["code"].acceptance == pytest.approx(0.2, abs=0.03)
    state, found = engine.run(state, 30, BOTH)
    assert [(a.traffic_class, a.signal.recovery) for a in found] == [("code", True)]
    assert found[0].cause == "content_drift"
    assert state.alarms == {}


def test_a_change_of_mix_is_no_drift_and_one_sentence(state: PipelineState, engine: Engine) -> None:
    state, found = engine.run(state, 200, {"chat": (40, 0.7), "code": (160, 0.4)})
    assert found == []
    sentence = mix_change(state, 0.05, standing=False)
    assert sentence is not None
    assert "chat 50% → 2" in sentence
    assert "by mix" in sentence
    state, found = engine.run(state, 30, BOTH)
    assert mix_change(state, 0.05, standing=False) is None


def test_the_blended_chart_would_have_alarmed() -> None:
    engine = Engine(np.random.default_rng(42))
    blended = replace(CONTEXT, blended=True)
    state, found = engine.run(PipelineState(), 46, BOTH, context=blended)
    assert set(state.charts) == {f"default|{HOME}"}
    moved = {"chat": (40.0, 0.7), "code": (160.0, 0.4)}
    state, found = engine.run(state, 60, moved, context=blended)
    assert kinds(found) == [("default", "drop", "content_drift")]


def test_without_a_tap_all_traffic_is_one_class() -> None:
    engine = Engine(np.random.default_rng(43))
    state, _ = engine.run(PipelineState(), 5, {"x": (100, 0.5)}, named=False)
    assert set(state.charts) == {f"default|{HOME}"}


def test_a_small_change_of_mix_is_not_mentioned(state: PipelineState, engine: Engine) -> None:
    state, _ = engine.run(state, 40, {"chat": (92, 0.7), "code": (108, 0.4)})
    assert mix_change(state, 0.05, standing=False) is None


def test_a_mix_on_the_edge_is_reported_once(state: PipelineState, engine: Engine) -> None:
    """The share wanders around the limit: hysteresis, one sentence, not one per crossing."""
    loop, made = loops.begin(AS_FOUND_CONFIG, 0.0), list[Decision]()
    for i in range(12):
        share = 0.175 if i % 2 == 0 else 0.13
        mix = {"chat": (1000 * (0.5 - share), 0.7), "code": (1000 * (0.5 + share), 0.4)}
        for _ in range(13):
            state, _ = engine.run(state, 1, mix)
            sentence = mix_change(state, 0.03, standing=loops.MIX in loop.said)
            tick = replace(facts(engine.time), mix=sentence)
            loop, decision = loops.advance(loop, tick, RULES)
            if decision is not None:
                made.append(decision)
    assert [d.kind for d in made] == [Kind.REPORT]


def test_a_new_class_is_a_change_of_mix_not_estimable(state: PipelineState, engine: Engine) -> None:
    new = {**BOTH, "batch": (100.0, 0.1)}
    state, found = engine.run(state, 15, new)
    assert found == []
    sentence = mix_change(state, 0.05, standing=False)
    assert sentence is not None
    assert "batch has no baseline yet" in sentence


def restart(engine: Engine, state: PipelineState, context: Context) -> PipelineState:
    gone = engine.window(BOTH, kind=WindowState.RESTARTED)
    engine.time += 1.0
    return ingest(state, [gone], context)[0]


@pytest.mark.parametrize(
    ("context", "cause"),
    [
        (CONTEXT, "weights_changed"),
        (replace(CONTEXT, version_changed=True), "engine_changed"),
    ],
)
def test_a_drop_after_a_restart(
    state: PipelineState, engine: Engine, context: Context, cause: str
) -> None:
    state = restart(engine, state, context)
    worse = {"chat": (100.0, 0.55), "code": (100.0, 0.25)}
    _, found = engine.run(state, 40, worse, context=context)
    assert sorted(kinds(found)) == [("chat", "drop", cause), ("code", "drop", cause)]
    assert all(a.signal.changed_with_deployment for a in found)


def test_a_restart_that_changes_nothing(state: PipelineState, engine: Engine) -> None:
    state = restart(engine, state, CONTEXT)
    state, found = engine.run(state, 250, BOTH)
    assert found == []


def test_windows_without_an_engine_change_nothing(state: PipelineState, engine: Engine) -> None:
    for kind in (WindowState.DOWN, WindowState.FIRST, WindowState.CLOCK_WENT_BACK):
        down = Window("a", engine.time, engine.time + 1, kind)
        after, found = ingest(state, [down], CONTEXT)
        assert found == ()
        assert after.charts == state.charts
        assert after.last_state == kind.value
    assert ingest(state, [], CONTEXT) == (state, ())


def test_no_traffic_is_a_state_and_moves_no_statistic(state: PipelineState, engine: Engine) -> None:
    after, found = engine.run(state, 20, {}, kind=WindowState.NO_TRAFFIC)
    assert found == []
    assert after.last_state == "no_traffic"
    for key, chart in after.charts.items():
        assert chart.drop == state.charts[key].drop
        assert chart.empty_windows == state.charts[key].empty_windows + 20


def test_speculation_off_is_the_reference_and_no_chart(
    state: PipelineState, engine: Engine
) -> None:
    off, found = engine.run(
        state, 20, {"x": (200, 0.5)}, kind=WindowState.SPECULATION_OFF, step=0.010
    )
    assert found == []
    assert off.charts == state.charts
    assert off.recent_key == OFF_KEY
    assert reference(off).at(8.0) == pytest.approx(0.010)
    assert current_benefit(off) is None
    back, found = engine.run(off, 12, BOTH)
    assert found == []
    assert back.recent_key == HOME
    benefit = current_benefit(back)
    assert benefit is not None
    assert benefit.value == pytest.approx((1 + 3 * 0.55) * 0.5, rel=0.05)


def test_another_configuration_has_charts_of_its_own(state: PipelineState, engine: Engine) -> None:
    other, found = engine.run(state, 60, {"chat": (100, 0.3), "code": (100, 0.1)}, method="ngram")
    assert found == []
    assert f"code|ngram:{K}" in other.charts
    assert other.charts[f"code|{HOME}"] == state.charts[f"code|{HOME}"]
    assert len(recent_rows(other)) == 60
    assert set(other.step_times) == {HOME, f"ngram:{K}"}
    # What was in force before is judged by its own windows only.
    assert all(r.time > engine.time - 60 for r in recent_rows(other))


def test_replicas_are_summed(state: PipelineState, engine: Engine) -> None:
    pair = [engine.window(BOTH, instance="a"), engine.window(BOTH, instance="b")]
    before = len(state.recent)
    after, _ = ingest(state, pair, CONTEXT)
    assert len(after.recent) == min(60, before + 1)
    spec = after.recent[-1].spec
    assert spec is not None
    assert spec.drafts == sum(w.spec.drafts for w in pair if w.spec)
    by_class = {s.traffic_class: s.draft_tokens for s in after.recent[-1].by_class}
    assert by_class["chat"] == sum(w.by_class[0].spec.draft_tokens for w in pair)


def test_one_replica_that_is_down_leaves_the_other(state: PipelineState, engine: Engine) -> None:
    found: list[AlarmRecord] = []
    for _ in range(30):
        up = engine.window({"chat": (100, 0.7), "code": (100, 0.1)}, instance="a")
        down = Window("b", engine.time, engine.time + 1, WindowState.DOWN)
        state, alarms = ingest(state, [down, up], CONTEXT)
        found.extend(alarms)
        engine.time += 1.0
    assert kinds(found) == [("code", "drop", "content_drift")]
    assert state.last_state == "ok"


def test_the_operating_point(state: PipelineState) -> None:
    point = current_point(state)
    assert point is not None
    assert point.num_speculative_tokens == K
    assert point.running == pytest.approx(8.0)
    assert point.step_seconds == pytest.approx(0.02)
    assert point.coverage == pytest.approx(1.0)
    assert current_point(PipelineState()) is None
    assert current_point(state, since=1e9) is None


def test_both_classes_collapsing_at_once_is_an_engine_fault(
    state: PipelineState, engine: Engine
) -> None:
    # chat, alphabetically first, is told before code is counted; the last one knows of both.
    _, found = engine.run(state, 6, {"chat": (100, 0.02), "code": (100, 0.012)})
    assert {a.traffic_class for a in found} == {"chat", "code"}
    assert found[-1].cause == "engine_fault_suspected"


def test_the_length_at_baseline_is_not_learned_while_an_alarm_stands(
    state: PipelineState, engine: Engine
) -> None:
    low = {"chat": (100.0, 0.7), "code": (100.0, 0.05)}
    state, found = engine.run(state, 30, low)
    assert found
    held = state.home_tokens / state.home_steps
    state, _ = engine.run(state, 100, low)
    assert state.home_tokens / state.home_steps == held


def test_modes_are_no_business_of_the_pipeline(state: PipelineState) -> None:
    chart = state.charts[f"chat|{HOME}"]
    assert chart.phase is ChartPhase.WATCHING
    assert RULES.mode is Mode.ACT
