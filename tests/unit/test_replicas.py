"""A workload of several engines: what one of them does must not be read as the workload's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from specdrift.core.detector import ChartPhase, DetectorConfig
from specdrift.core.engines.model import EngineCounters, SpecCounters
from specdrift.core.pipeline import AlarmRecord, Context, PipelineState, ingest, reference
from specdrift.core.windows import Snapshot, window_between

DETECTOR = DetectorConfig(86400.0, 0.05, 60.0, 1.0)
CONTEXT = Context(DETECTOR, home_key="unknown:3")
STEPS = 200.0
LOAD = 8.0

Page = Callable[[str, int], EngineCounters | None]


def page(
    n: int, *, acceptance: float = 0.7, step: float = 0.02, off: bool = False, began: float = 1.0
) -> EngineCounters:
    """A page after `n` seconds of steady work; K = 3."""
    drafts = n * STEPS * LOAD
    each = drafts * acceptance
    return EngineCounters(
        "vllm",
        "llama",
        "0",
        process_start=began,
        spec=None if off else SpecCounters(drafts, 3 * drafts, 3 * each, (each,) * 3),
        generation_tokens=drafts * (1.0 if off else 1 + 3 * acceptance),
        first_tokens=float(n),
        steps=n * STEPS,
        request_steps=n * STEPS * LOAD,
        request_step_seconds=n * STEPS * LOAD * step,
        running=LOAD,
    )


def run(seconds: int, pages: dict[str, Page]) -> tuple[PipelineState, list[AlarmRecord]]:
    state, found = PipelineState(), list[AlarmRecord]()
    last: dict[str, Snapshot] = {}
    for n in range(seconds):
        now = [Snapshot(name, 100.0 + n, made(name, n)) for name, made in pages.items()]
        windows = [window_between(last.get(s.instance), s) for s in now]
        last.update({s.instance: s for s in now if s.counters is not None})
        state, alarms = ingest(state, windows, CONTEXT)
        found.extend(alarms)
    return state, found


@pytest.fixture
def wobbly() -> Page:
    """Acceptance by instance and second, the same whoever asks."""
    levels = {name: np.random.default_rng(i).normal(0.7, 0.01, 400) for i, name in enumerate("ab")}
    return lambda name, n: page(n, acceptance=float(levels[name][: max(n, 1)].mean()))


def test_a_replica_that_is_down_adds_no_time_to_phase_one(wobbly: Page) -> None:
    alone, _ = run(50, {"a": wobbly})
    beside, _ = run(50, {"a": wobbly, "b": lambda name, n: None})
    for state in (alone, beside):
        (chart,) = state.charts.values()
        assert chart.phase is ChartPhase.LEARNING
        assert chart.seconds_seen == pytest.approx(49.0, abs=1.0)


def test_one_of_three_that_restarts_loses_its_own_window_only(wobbly: Page) -> None:
    def restarting(name: str, n: int) -> EngineCounters:
        return page(n) if n < 90 else page(n - 90, began=190.0)

    state, found = run(140, {"a": wobbly, "b": wobbly, "c": restarting})
    assert found == []
    assert state.restarted_at is None
    assert all(c.changeover is None for c in state.charts.values())


def test_a_replica_without_speculation_measures_the_step_time_without_it() -> None:
    pages: dict[str, Page] = {
        "off": lambda name, n: page(n, off=True, step=0.010),
        "on": lambda name, n: page(n, step=0.030),
    }
    state, _ = run(20, pages)
    without = reference(state).at(LOAD)
    assert without == pytest.approx(0.010, rel=0.01)
    assert [key.rsplit("|", 1)[1] for key in state.charts] == ["unknown:3"]


def test_two_configs_that_share_the_load_do_not_take_turns() -> None:
    """Whichever did a little more in a window: a flip would forget what was seen so far."""
    pages: dict[str, Page] = {
        "off": lambda name, n: page(n + n % 2, off=True, step=0.010),
        "on": lambda name, n: page(n, step=0.030),
    }
    state, _ = run(40, pages)
    assert state.recent_key == "unknown:3"
    assert len(state.recent) > 30
