"""One chart: learning, drops and rises, gaps, restarts, the way back."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from specdrift.core.detector import (
    ChartPhase,
    ChartState,
    DetectorConfig,
    Observation,
    Side,
    current_effect,
    decision_intervals,
    step,
)
from tests.support.observations import empty, follow, observations

CONFIG = DetectorConfig(
    false_alarm_interval=86400.0, smallest_drop=0.05, phase_one=45.0, scrape_interval=1.0
)
LEVEL = 0.5


@pytest.fixture(scope="module")
def learned() -> ChartState:
    """A chart that has just left Phase I; solving for its thresholds is not timed."""
    state, signals = follow(
        ChartState(), observations(np.random.default_rng(11), [LEVEL] * 45), CONFIG
    )
    assert signals == []
    return state


def after(levels: list[float], *, seed: int, start: float = 45.0) -> list[Observation]:
    return observations(np.random.default_rng(seed), levels, start=start)


def statistics(state: ChartState) -> object:
    return state.drop, state.rise, state.baseline, state.alarm, state.phase, state.intervals


def test_phase_one_is_seconds_of_traffic() -> None:
    busy = observations(np.random.default_rng(12), [LEVEL] * 44)
    state, _ = follow(ChartState(), busy, CONFIG)
    assert state.phase is ChartPhase.LEARNING
    state, _ = follow(state, [empty(44.0 + i, 45.0 + i) for i in range(100)], CONFIG)
    assert state.phase is ChartPhase.LEARNING
    assert state.empty_windows == 100
    state, _ = follow(state, after([LEVEL], seed=12, start=144.0), CONFIG)
    assert state.phase is ChartPhase.WATCHING
    assert state.baseline is not None
    assert state.baseline.windows == 45
    assert state.baseline.fill == pytest.approx(45 / 145)
    assert state.drafts == ()  # Phase I is kept as its summary only


def test_long_windows_still_need_a_dozen() -> None:
    slow = observations(np.random.default_rng(13), [LEVEL] * 11, seconds=15.0)
    state, _ = follow(ChartState(), slow, CONFIG)
    assert state.baseline is None


@pytest.mark.parametrize(
    ("size", "within"), [(-0.10, 20.0), (-0.30, 5.0), (0.10, 20.0), (0.30, 5.0)]
)
def test_a_change_is_found_with_its_size_and_beginning(
    learned: ChartState, size: float, within: float
) -> None:
    for seed in range(10):
        levels = [LEVEL] * 60 + [LEVEL + size] * 30
        _, signals = follow(learned, after(levels, seed=seed), CONFIG)
        assert signals, f"seed {seed}: not found"
        found = signals[0]
        assert found.side is (Side.DROP if size < 0 else Side.RISE)
        assert 105.0 < found.time <= 105.0 + within
        assert abs(found.change_point - 105.0) <= 4.0
        assert found.change_point < found.time
        assert found.interval[0] < found.effect < found.interval[1]
        assert found.effect == pytest.approx(size, abs=0.08)
        assert found.level_after - found.level_before == pytest.approx(found.effect)
        assert not found.changed_with_deployment
        assert not found.recovery


def test_intervals_hold_the_true_effect(learned: ChartState) -> None:
    """Selection biases the effect at the alarm; on windows after it 95% hold what they say."""
    held = 0
    for seed in range(60):
        state, signals = follow(learned, after([LEVEL - 0.15] * 40, seed=100 + seed), CONFIG)
        assert signals
        effect = current_effect(state)
        assert effect is not None
        level, size, (low, high) = effect
        assert level == pytest.approx(LEVEL - 0.15, abs=0.03)
        assert low < size < high
        held += low <= -0.15 <= high
    # One baseline serves all: its own error is in every interval, so no binomial count applies.
    assert held >= 50


def test_no_effect_without_an_alarm(learned: ChartState) -> None:
    assert current_effect(learned) is None
    assert current_effect(ChartState()) is None


def test_less_than_the_guard_is_no_drift(learned: ChartState) -> None:
    assert learned.baseline is not None
    inside = learned.baseline.acceptance - 0.5 * learned.baseline.guard
    _, signals = follow(learned, after([inside] * 600, seed=14), CONFIG)
    assert signals == []


def test_a_collapse_to_nothing_is_found_at_once(learned: ChartState) -> None:
    zero = [Observation(45.0 + i, 46.0 + i, 120.0, 360.0, 0.0) for i in range(5)]
    _, signals = follow(learned, zero, CONFIG)
    assert signals
    assert signals[0].time <= 48.0


def test_a_standing_alarm_is_said_once(learned: ChartState) -> None:
    state, signals = follow(learned, after([LEVEL - 0.2] * 200, seed=15), CONFIG)
    assert len(signals) == 1
    assert state.phase is ChartPhase.ALARMED
    assert state.alarm is not None
    assert state.alarm.since_alarm.windows > 150


def test_the_return_is_seen_and_the_baseline_kept(learned: ChartState) -> None:
    levels = [LEVEL - 0.2] * 60 + [LEVEL] * 60
    state, signals = follow(learned, after(levels, seed=16), CONFIG)
    assert [s.recovery for s in signals] == [False, True]
    back = signals[1]
    assert back.side is Side.RISE
    assert 105.0 < back.time < 120.0
    assert abs(back.change_point - 105.0) <= 4.0
    assert back.effect > 0
    assert state.phase is ChartPhase.WATCHING
    assert state.baseline == learned.baseline
    assert state.alarm is None
    _, again = follow(state, after([LEVEL - 0.2] * 30, seed=17, start=165.0), CONFIG)
    assert len(again) == 1


def test_half_way_back_is_no_return(learned: ChartState) -> None:
    levels = [LEVEL - 0.3] * 40 + [LEVEL - 0.2] * 200
    _, signals = follow(learned, after(levels, seed=18), CONFIG)
    assert [s.recovery for s in signals] == [False]


@pytest.mark.parametrize("phase", ["learning", "watching", "alarmed"])
def test_a_window_without_traffic_changes_no_statistic(learned: ChartState, phase: str) -> None:
    states = {
        "learning": follow(ChartState(), after([LEVEL] * 20, seed=19), CONFIG)[0],
        "watching": follow(learned, after([LEVEL - 0.05] * 4, seed=20), CONFIG)[0],
        "alarmed": follow(learned, after([LEVEL - 0.3] * 20, seed=21), CONFIG)[0],
    }
    before = states[phase]
    assert before.phase.value == phase
    now, signal = step(before, empty(before.last_time, before.last_time + 1), CONFIG)
    assert signal is None
    assert statistics(now) == statistics(before)
    assert now.seconds_seen == before.seconds_seen
    assert now.drafts == before.drafts
    assert now.empty_windows == before.empty_windows + 1


@pytest.mark.parametrize(
    ("drafts", "tokens", "accepted"),
    [
        (100.0, 300.0, 301.0),
        (100.0, 300.0, math.nan),
        (math.nan, 300.0, 100.0),
        (100.0, math.inf, 100.0),
        (100.0, 300.0, -1.0),
        (-100.0, 300.0, 100.0),
        (0.0, 300.0, 100.0),
        (100.0, 0.0, 0.0),
    ],
)
def test_impossible_counts_are_no_evidence(
    learned: ChartState, drafts: float, tokens: float, accepted: float
) -> None:
    bad = [Observation(45.0 + i, 46.0 + i, drafts, tokens, accepted) for i in range(50)]
    state, signals = follow(learned, bad, CONFIG)
    assert signals == []
    assert statistics(state) == statistics(learned)
    fresh, _ = follow(ChartState(), bad, CONFIG)
    assert fresh.baseline is None
    assert fresh.drafts == ()


def test_time_that_does_not_go_on_is_ignored(learned: ChartState) -> None:
    state, _ = follow(learned, after([LEVEL] * 5, seed=22), CONFIG)
    for end in (state.last_time, state.last_time - 3.0, state.last_time - 19.0):
        same, signal = step(state, Observation(end - 1, end, 120.0, 360.0, 0.0), CONFIG)
        assert same == state
        assert signal is None


def test_a_clock_that_was_set_back_does_not_blind_the_chart(learned: ChartState) -> None:
    state, _ = follow(learned, after([LEVEL] * 5, seed=22), CONFIG)
    day = observations(np.random.default_rng(22), [LEVEL] * 10 + [LEVEL - 0.2] * 10, start=-86400.0)
    _, signals = follow(state, day, CONFIG)
    assert [s.side for s in signals] == [Side.DROP]
    assert -86390.0 < signals[0].time < -86380.0


def test_a_missed_scrape_is_one_longer_window(learned: ChartState) -> None:
    late = observations(np.random.default_rng(23), [LEVEL], start=45.0, seconds=9.0, drafts=1080.0)
    state, signals = follow(learned, late, CONFIG)
    assert signals == []
    assert state.last_time == 54.0


def test_a_restart_with_a_worse_draft_is_changed_with_the_deployment(learned: ChartState) -> None:
    for seed in range(10):
        gone = Observation(45.0, 60.0, 900.0, 2700.0, 100.0, restarted=True)
        seen = [gone, *after([LEVEL - 0.10] * 40, seed=30 + seed, start=60.0)]
        _, signals = follow(learned, seen, CONFIG)
        assert len(signals) == 1
        assert signals[0].changed_with_deployment
        assert signals[0].side is Side.DROP
        assert 60.0 <= signals[0].change_point < signals[0].time < 80.0


def test_an_unchanged_restart_raises_nothing(learned: ChartState) -> None:
    """The error of each changeover test is 0.1% plus the chart's own: none in 20 is expected."""
    for seed in range(20):
        # The window over the restart holds counts of two processes: far off, and not used.
        gone = Observation(45.0, 60.0, 900.0, 2700.0, 0.0, restarted=True)
        seen = [gone, *after([LEVEL] * 250, seed=60 + seed, start=60.0)]
        state, signals = follow(learned, seen, CONFIG)
        assert signals == [], f"seed {seed}"
        assert state.changeover is None
        assert state.baseline == learned.baseline


def test_evidence_from_before_a_restart_is_dropped(learned: ChartState) -> None:
    state, _ = follow(learned, after([LEVEL - 0.06] * 4, seed=24), CONFIG)
    state, _ = step(state, Observation(49.0, 50.0, 1.0, 3.0, 1.0, restarted=True), CONFIG)
    assert all(s.value == 0 and s.since == 50.0 for s in (*state.drop, *state.rise))


def test_a_restart_while_learning_alarms_nothing() -> None:
    seen = after([LEVEL] * 20, seed=25)
    seen.append(Observation(65.0, 66.0, 1.0, 3.0, 1.0, restarted=True))
    state, signals = follow(ChartState(), seen, CONFIG)
    assert signals == []
    assert state.phase is ChartPhase.LEARNING


@pytest.mark.timeout(30)  # solves a dozen thresholds
def test_thresholds_follow_the_budget(learned: ChartState) -> None:
    baseline = learned.baseline
    assert baseline is not None
    assert learned.intervals == decision_intervals(baseline, CONFIG)
    rare = decision_intervals(baseline, replace(CONFIG, false_alarm_interval=30 * 86400.0))
    shared = decision_intervals(baseline, replace(CONFIG, charts=4))
    sparse = decision_intervals(replace(baseline, fill=0.1), CONFIG)
    for ours, longer, split, idle in zip(learned.intervals, rare, shared, sparse, strict=True):
        assert idle < ours < split < longer
    # Four charts at one alarm a day between them: one chart at one in four days.
    assert shared == pytest.approx(
        decision_intervals(baseline, replace(CONFIG, false_alarm_interval=4 * 86400.0))
    )


@pytest.mark.parametrize("sd", [0.02, 0.01, 0.006, 0.004, 0.002])
@pytest.mark.parametrize("size", [-0.3, -0.1, 0.1])
def test_a_steady_busy_class_is_watched_all_the_better(sd: float, size: float) -> None:
    """Hundreds of requests a window: the level is known to a fraction of the smallest drop.

    Clipping at 4 sigma must leave more than guard + delta / 2, or no change is ever seen.
    """
    rng = np.random.default_rng(26)
    state, signals = follow(
        ChartState(), observations(rng, [LEVEL] * 45, drafts=1e5, sd=sd), CONFIG
    )
    assert signals == []
    assert state.phase is ChartPhase.WATCHING
    levels = [LEVEL] * 100 + [LEVEL + size] * 15
    _, signals = follow(state, observations(rng, levels, drafts=1e5, sd=sd, start=45.0), CONFIG)
    assert [s.side for s in signals] == [Side.DROP if size < 0 else Side.RISE]
    assert 145 < signals[0].time <= 155
