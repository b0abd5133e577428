"""Speedup, break-even and dollars: identities, published figures, and "not known"."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specdrift.core.economics import (
    Estimate,
    Operating,
    SpeedRow,
    StepTimes,
    best_lower_k,
    break_even_acceptance,
    cost_per_million_tokens,
    dollars_per_hour_gained,
    gain_between,
    merge_rows,
    operating_point,
    overhead,
    predicted_speedup,
    speed_row,
    speedup,
    tokens_per_step,
)
from specdrift.core.windows import Window, WindowState


def row(running: float, seconds: float, length: float, *, steps: float = 1000.0) -> SpeedRow:
    return SpeedRow(0.0, running, seconds, length * steps, steps)


def table(*points: tuple[float, float]) -> StepTimes:
    times = StepTimes()
    for running, seconds in points:
        times = times.add(row(running, seconds, 1.0))
    return times


def window(**changes: object) -> Window:
    values: dict[str, object] = {
        "generation_tokens": 2200.0,
        "first_tokens": 10.0,
        "steps": 125.0,
        "request_steps": 1000.0,
        "request_step_seconds": 20.0,
    }
    return Window("i", 0.0, 1.0, WindowState.OK, **{**values, **changes})  # type: ignore[arg-type]


def test_a_windows_speed() -> None:
    found = speed_row(window())
    assert found is not None
    assert found.running == 8.0
    assert found.step_seconds == pytest.approx(0.02)
    assert found.tokens_per_step == pytest.approx(2.19)  # first tokens come from the prefill
    assert found.seconds_per_token == pytest.approx(0.02 / 2.19)


@pytest.mark.parametrize(
    "absent",
    ["generation_tokens", "request_steps", "request_step_seconds"],
)
def test_what_the_engine_does_not_tell_is_no_speed(absent: str) -> None:
    assert speed_row(window(**{absent: None})) is None
    assert speed_row(window(**{absent: 0.0})) is None


def test_a_handful_of_steps_is_no_speed() -> None:
    assert speed_row(window(request_steps=19.0, steps=10.0)) is None
    assert speed_row(window(generation_tokens=5.0)) is None


@pytest.mark.parametrize(
    ("a", "rates"),
    [(0.7, {1: 0.700, 2: 0.595, 3: 0.511, 5: 0.388, 7: 0.306})],
)
def test_acceptance_rate_and_length_say_the_same(a: float, rates: dict[int, float]) -> None:
    """1 + K alpha = 1 + sum S_j = (1 - a^(K+1)) / (1 - a): never compare alpha across K."""
    for k, rate in rates.items():
        positions = [a**j for j in range(1, k + 1)]
        alpha = sum(positions) / k
        assert alpha == pytest.approx(rate, abs=6e-4)
        drafts = 1000.0
        point = operating_point(
            [row(8, 0.02, 1 + k * alpha)], k, drafts, [s * drafts for s in positions]
        )
        assert point is not None
        assert point.tokens_per_step == pytest.approx((1 - a ** (k + 1)) / (1 - a))
        assert 1 + sum(point.position_acceptance) == pytest.approx(point.tokens_per_step)


@pytest.mark.parametrize(("omega", "k"), [(0.84, 3), (1.5, 5), (0.2, 1)])
def test_at_break_even_speculation_neither_gains_nor_loses(omega: float, k: int) -> None:
    alpha = break_even_acceptance(omega, k)
    assert alpha == pytest.approx(omega / k)
    base = 0.010
    found = speedup([row(8, base * (1 + omega), 1 + k * alpha)] * 5, table((8, base)))
    assert found is not None
    assert found.value == pytest.approx(1.0)


def test_speedup_is_length_over_the_cost_of_a_step() -> None:
    found = speedup([row(8, 0.0184, 2.54)] * 6, table((8, 0.010)))
    assert found is not None
    assert found.value - 1 == pytest.approx(2.54 / 1.84 - 1)
    assert found.value - 1 == pytest.approx(0.38, abs=0.001)
    assert found.low < found.value < found.high
    assert found.windows == 6


def test_high_acceptance_can_lose() -> None:
    found = speedup([row(32, 0.050, 3.2)] * 5, table((32, 0.0134)))
    assert found is not None
    assert found.high < 1


def test_the_interval_widens_with_noise_and_holds_the_truth() -> None:
    rng = np.random.default_rng(8)
    reference, misses = table((8, 0.010)), 0
    widths = []
    for spread in [0.02] * 100 + [0.10] * 100:
        rows = [row(8, 0.016 * (1 + spread * rng.standard_normal()), 2.0) for _ in range(12)]
        found = speedup(rows, reference)
        assert found is not None
        widths.append(found.high - found.low)
        misses += not found.low <= 1.25 <= found.high
    assert np.mean(widths[100:]) > 1.5 * np.mean(widths[:100])
    assert misses <= 18  # 5% of 200 is 10; P(more than 18) is under 1%


def test_too_few_comparable_windows_are_not_known() -> None:
    reference = table((8, 0.010))
    assert speedup([row(8, 0.02, 2)] * 2, reference) is None
    assert speedup([row(8, 0.02, 2)] * 9, StepTimes()) is None
    assert speedup([row(64, 0.02, 2)] * 9, reference) is None
    assert tokens_per_step([row(8, 0.02, 2)] * 2) is None


def test_step_times_are_interpolated_between_loads() -> None:
    times = table((1, 0.010), (16, 0.016))
    assert times.at(1) == pytest.approx(0.010)
    assert times.at(16) == pytest.approx(0.016)
    assert times.at(8.5) == pytest.approx(0.013)


@pytest.mark.parametrize("running", [2.0, 4.0, 200.0])
def test_step_times_outside_what_was_measured_are_not_known(running: float) -> None:
    """The module promises None, not a guess: these loads are 4 times or more outside."""
    assert table((16, 0.016), (32, 0.022)).at(running) is None


def test_step_times_reach_a_little_beyond() -> None:
    times = table((8, 0.013), (32, 0.022))
    assert times.at(7) is not None
    assert times.at(40) == pytest.approx(0.025)
    assert StepTimes().at(8) is None


def test_old_step_times_fade() -> None:
    times = table(*[(8, 0.010)] * 500)
    for _ in range(1500):
        times = times.add(row(8, 0.020, 1))
    assert times.at(8) == pytest.approx(0.020, rel=0.01)


def test_fewer_tokens_are_predicted_from_measured_positions() -> None:
    reference = table((8, 0.010))
    point = Operating(8, 1 + 0.6 + 0.3 + 0.1, 0.022, 3, (0.6, 0.3, 0.1), 1.0)
    assert predicted_speedup(point, reference, 3) == pytest.approx(2.0 / 2.2)
    assert predicted_speedup(point, reference, 1) == pytest.approx(1.6 / 1.4)
    assert predicted_speedup(point, reference, 0) == 1.0
    assert best_lower_k(point, reference) == (1, pytest.approx(1.6 / 1.4))
    assert overhead(point, reference) == pytest.approx(1.2)


def test_ties_go_to_the_larger_k() -> None:
    # Every position accepted and every token free: the more the better, and no more costs none.
    point = Operating(8, 1.5, 0.010, 4, (0.5, 0.0, 0.0, 0.0), 1.0)
    assert best_lower_k(point, table((8, 0.010))) == (3, pytest.approx(1.5))


def test_predictions_without_what_they_need_are_not_known() -> None:
    point = Operating(8, 2.0, 0.022, 3, (0.6, 0.3, 0.1), 1.0)
    assert predicted_speedup(point, StepTimes(), 1) is None
    assert predicted_speedup(point, table((8, 0.01)), 4) is None
    blind = Operating(8, 2.0, 0.022, 3, (), 1.0)
    assert predicted_speedup(blind, table((8, 0.01)), 2) is None
    assert best_lower_k(blind, table((8, 0.01))) is None
    assert best_lower_k(Operating(8, 1.5, 0.02, 1, (0.5,), 1.0), table((8, 0.01))) is None
    assert overhead(point, StepTimes()) is None
    assert operating_point([], 3, 0.0, ()) is None


def test_the_operating_point_is_weighted_by_steps() -> None:
    point = operating_point(
        [row(4, 0.010, 2.0, steps=100), row(16, 0.020, 1.0, steps=300)], 3, 200.0, (100.0, 50.0)
    )
    assert point is not None
    assert point.running == pytest.approx(13.0)
    assert point.step_seconds == pytest.approx(0.0175)
    assert point.tokens_per_step == pytest.approx(1.25)
    assert point.coverage == pytest.approx(0.5)
    assert point.position_acceptance == (0.5, 0.25)


def test_cost_per_million_tokens() -> None:
    assert cost_per_million_tokens(2.01, 1, 3600) == pytest.approx(0.155, abs=5e-4)
    assert cost_per_million_tokens(2.01, 2, 3600) == pytest.approx(0.310, abs=5e-4)
    assert cost_per_million_tokens(2.01, 1, 0.0) is None


def test_dollars_an_hour() -> None:
    assert dollars_per_hour_gained(4.0, 2, 1.25) == pytest.approx(2.0)
    assert dollars_per_hour_gained(4.0, 2, 0.75) == pytest.approx(-2.0)


def test_gain_between_two_estimates() -> None:
    gain = gain_between(Estimate(0.8, 0.76, 0.84, 12), Estimate(1.0, 0.97, 1.03, 8))
    assert gain.value == pytest.approx(0.25)
    relative = math.hypot(0.05, 0.03)
    assert gain.low == pytest.approx(1.25 * (1 - relative) - 1)
    assert gain.high == pytest.approx(1.25 * (1 + relative) - 1)
    assert gain.windows == 8


def test_replicas_become_one_row() -> None:
    merged = merge_rows([row(4, 0.010, 2.0, steps=100), row(8, 0.020, 1.0, steps=300)])
    assert merged is not None
    assert merged.tokens == pytest.approx(500)
    assert merged.running == pytest.approx(7.0)
    assert merged.step_seconds == pytest.approx(0.0175)
    assert merge_rows([]) is None
