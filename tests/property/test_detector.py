"""Charts over arbitrary streams: no alarm from nonsense, no certainty, nothing hidden."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdrift.core.detector import ChartPhase, ChartState, DetectorConfig, Observation, step
from specdrift.core.estimators import learn_baseline
from specdrift.service import checkpoint
from tests.support.observations import empty, follow, observations

CONFIG = DetectorConfig(
    false_alarm_interval=86400.0, smallest_drop=0.05, phase_one=45.0, scrape_interval=1.0
)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@pytest.fixture(scope="module")
def learned() -> ChartState:
    """A chart out of Phase I; solving for thresholds is not timed."""
    return follow(ChartState(), observations(np.random.default_rng(70), [0.5] * 45), CONFIG)[0]


@given(st.integers(0, 2**32), st.floats(0.05, 0.95), st.integers(1, 59), st.booleans())
def test_a_chart_saved_in_the_middle_goes_on_bit_by_bit(
    learned: ChartState, seed: int, level: float, cut: int, restart: bool
) -> None:
    rng = np.random.default_rng(seed)
    levels = [0.5] * 20 + [level] * 20 + [0.5] * 20
    seen = observations(rng, levels, start=45.0)
    if restart:
        seen[30] = replace(seen[30], restarted=True)
    whole, signals = follow(learned, seen, CONFIG)
    first, early = follow(learned, seen[:cut], CONFIG)
    text = checkpoint.dump(first)
    second, late = follow(checkpoint.load(ChartState, text), seen[cut:], CONFIG)
    assert second == whole
    assert checkpoint.dump(second) == checkpoint.dump(whole)
    assert early + late == signals


@given(st.integers(0, 2**32))
def test_the_same_stream_gives_the_same_answer(learned: ChartState, seed: int) -> None:
    def once() -> object:
        levels = [0.5] * 10 + [0.3] * 20
        return follow(
            learned, observations(np.random.default_rng(seed), levels, start=45.0), CONFIG
        )

    assert once() == once()


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=40))
def test_nonsense_never_alarms(
    learned: ChartState, counts: list[tuple[float, float, float]]
) -> None:
    bad = []
    for i, (drafts, tokens, accepted) in enumerate(counts):
        made = Observation(45.0 + i, 46.0 + i, drafts, tokens, accepted)
        if made.usable:
            made = replace(made, accepted_tokens=made.draft_tokens * 2 + 1)
        bad.append(made)
    for start in (learned, ChartState()):
        state, signals = follow(start, bad, CONFIG)
        assert signals == []
        assert (state.drop, state.rise, state.baseline) == (start.drop, start.rise, start.baseline)


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 2**32))
def test_windows_without_traffic_change_nothing_that_counts(
    learned: ChartState, gaps: list[bool], seed: int
) -> None:
    """The same busy windows with empty ones in between: the same statistics and signals."""
    levels = [0.5, 0.42, 0.5, 0.3] * 15
    busy = observations(np.random.default_rng(seed), levels, start=45.0, seconds=2.0)
    mixed: list[Observation] = []
    for observation, gap in zip(busy, [*gaps, *[False] * 60], strict=False):
        if gap:
            mixed.append(empty(observation.start, observation.start + 0.5))
        mixed.append(observation)
    plain, signals = follow(learned, busy, CONFIG)
    gappy, others = follow(learned, mixed, CONFIG)
    assert others == signals
    assert replace(gappy, empty_windows=plain.empty_windows) == plain


@given(st.integers(0, 2**32), st.lists(st.floats(44.5, 64.0), min_size=1, max_size=20))
def test_time_that_goes_back_is_ignored(learned: ChartState, seed: int, times: list[float]) -> None:
    state, _ = follow(
        learned, observations(np.random.default_rng(seed), [0.45] * 19, start=45.0), CONFIG
    )
    late = [Observation(t - 1.0, t, 120.0, 360.0, 0.0) for t in times]
    assert follow(state, late, CONFIG) == (state, [])


@given(
    st.lists(
        st.tuples(st.integers(1, 10**7).map(float), st.sampled_from([0.0, 1.0])),
        min_size=12,
        max_size=80,
    ),
    st.integers(1, 10),
)
def test_phase_one_is_never_certain(windows: list[tuple[float, float]], k: int) -> None:
    baseline = learn_baseline(
        [d for d, _ in windows], [x for _, x in windows], num_speculative_tokens=k
    )
    assert baseline is not None
    assert baseline.variance_within > 0
    assert baseline.variance_between >= 0
    assert 0 < baseline.standard_error < math.inf
    assert 0 < baseline.mean_information < math.inf
    assert baseline.long_run_factor >= 1
    assert baseline.safety_factor >= 1
    assert -1e-9 <= baseline.acceptance <= 1 + 1e-9
    for drafts, _ in windows:
        # Never better known than a binomial with half a surprise in all of Phase I.
        floor = 0.5 / (len(windows) + 1)
        assert baseline.information(drafts) <= 1.01 * drafts * k / (floor * (1 - floor))


@pytest.mark.timeout(30)  # a constant Phase I is very sure: thresholds for each of them
@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_constant_phase_one_still_tolerates_noise(level: float) -> None:
    constant = [Observation(float(i), i + 1.0, 100.0, 300.0, 300.0 * level) for i in range(45)]
    state, _ = follow(ChartState(), constant, CONFIG)
    assert state.phase is ChartPhase.WATCHING
    accepted = {0.0: 1.0, 0.5: 152.0, 1.0: 299.0}[level]
    seen = [Observation(45.0 + i, 46.0 + i, 100.0, 300.0, accepted) for i in range(200)]
    state, signals = follow(state, seen, CONFIG)
    assert signals == []
    # ... and is not blind: from nothing (or everything) accepted to half is no noise.
    half = 0.2 if level == 0.5 else 0.5
    moved = [Observation(245.0 + i, 246.0 + i, 100.0, 300.0, 300.0 * half) for i in range(20)]
    assert len(follow(state, moved, CONFIG)[1]) == 1


@given(st.integers(0, 2**32), st.floats(0.0, 1.0))
@settings(max_examples=40)
def test_signals_are_consistent_whatever_comes(
    learned: ChartState, seed: int, level: float
) -> None:
    seen = observations(np.random.default_rng(seed), [0.5] * 5, start=45.0)
    seen += [
        Observation(50.0 + i, 51.0 + i, 100.0, 300.0, 300.0 * level) for i in range(60)
    ] + observations(np.random.default_rng(seed), [0.5] * 40, start=110.0)
    state, signals = follow(learned, seen, CONFIG)
    expected = False
    for signal in signals:
        assert signal.recovery is expected
        expected = not expected
        assert 45.0 <= signal.change_point <= signal.time
        assert signal.interval[0] <= signal.effect <= signal.interval[1]
        assert (signal.effect < 0) == (signal.side == "drop")
    assert (state.phase is ChartPhase.ALARMED) == expected
    for statistic, interval in zip(state.drop, state.intervals, strict=True):
        assert 0 <= statistic.value <= 2 * interval


@pytest.mark.timeout(120)  # 120 000 windows, and thresholds for 25 baselines
def test_false_alarms_are_as_rare_as_promised() -> None:
    """200 stationary streams of 600 one-second windows, as noisy as recorded traffic.

    Asked for: one false alarm a day, both sides together. 200 x 555 watched windows are 1.28
    days, so 1.28 false alarms are promised; a Poisson count of that mean exceeds 5 once in 450.
    Every Phase I serves 8 streams: its thresholds take longer to solve for than a stream to watch.
    """
    rng = np.random.default_rng(71)
    alarms = watched = 0
    for _ in range(25):
        level, sd = rng.uniform(0.15, 0.6), rng.choice([0.02, 0.04, 0.056])
        learned, _ = follow(ChartState(), observations(rng, [level] * 45, sd=sd), CONFIG)
        assert learned.phase is ChartPhase.WATCHING
        for _ in range(8):
            state = learned
            for observation in observations(rng, [level] * 555, sd=sd, start=45.0):
                state, signal = step(state, observation, CONFIG)
                alarms += signal is not None and not signal.recovery
                watched += 1
    assert watched == 111_000
    assert alarms <= 5


@pytest.mark.timeout(60)
def test_a_drop_of_a_tenth_is_found_in_the_same_noise() -> None:
    """The counterpart: silence alone would pass the test above."""
    rng = np.random.default_rng(72)
    for sd in (0.02, 0.056):
        state, _ = follow(ChartState(), observations(rng, [0.4] * 45, sd=sd), CONFIG)
        delays = []
        for _ in range(20):
            _, signals = follow(state, observations(rng, [0.3] * 120, sd=sd, start=45.0), CONFIG)
            assert signals
            assert signals[0].side == "drop"
            delays.append(signals[0].time - 45.0)
        assert np.median(delays) < (15 if sd == 0.02 else 60)
