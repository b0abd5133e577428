"""Identities of speed and cost, whatever the numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specdrift.core.economics import (
    Estimate,
    Operating,
    SpeedRow,
    StepTimes,
    best_lower_k,
    break_even_acceptance,
    cost_per_million_tokens,
    gain_between,
    merge_rows,
    operating_point,
    predicted_speedup,
    speedup,
)

TIMES = st.floats(1e-4, 1.0)
LOADS = st.floats(1.0, 512.0)
LENGTHS = st.floats(1.0, 9.0)


def row(running: float, seconds: float, length: float, steps: float = 1000.0) -> SpeedRow:
    return SpeedRow(0.0, running, seconds, length * steps, steps)


def table(running: float, seconds: float) -> StepTimes:
    return StepTimes().add(row(running, seconds, 1.0))


@given(st.floats(0.01, 0.99), st.integers(1, 12))
def test_length_is_one_plus_k_alpha(a: float, k: int) -> None:
    positions = [a**j for j in range(1, k + 1)]
    alpha = sum(positions) / k
    assert 1 + k * alpha == pytest.approx(1 + sum(positions))
    assert 1 + k * alpha == pytest.approx((1 - a ** (k + 1)) / (1 - a))
    point = operating_point([row(8, 0.02, 1 + k * alpha)], k, 1000.0, [s * 1000 for s in positions])
    assert point is not None
    assert 1 + point.coverage * sum(point.position_acceptance) == pytest.approx(
        point.tokens_per_step
    )


@given(st.floats(0.0, 5.0), st.integers(1, 12), TIMES, LOADS)
def test_at_break_even_speed_is_that_of_plain_decoding(
    omega: float, k: int, base: float, load: float
) -> None:
    alpha = break_even_acceptance(omega, k)
    found = speedup([row(load, base * (1 + omega), 1 + k * alpha)] * 4, table(load, base))
    assert found is not None
    assert found.value == pytest.approx(1.0)


@given(LENGTHS, TIMES, TIMES, LOADS)
def test_speedup_is_length_times_plain_over_present(
    length: float, base: float, seconds: float, load: float
) -> None:
    found = speedup([row(load, seconds, length)] * 3, table(load, base))
    assert found is not None
    assert found.value == pytest.approx(length * base / seconds)
    assert found.low <= found.value <= found.high


@given(LENGTHS, TIMES, LOADS)
def test_speculation_off_is_one(length: float, base: float, load: float) -> None:
    point = Operating(load, length, base * 1.5, 3, (0.5, 0.2, 0.1), 1.0)
    assert predicted_speedup(point, table(load, base), 0) == 1.0


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), TIMES, st.floats(0.0, 4.0))
def test_predictions_agree_with_the_measurement_at_the_k_in_force(
    raw: list[float], base: float, omega: float
) -> None:
    positions = tuple(sorted(raw, reverse=True))
    length = 1 + sum(positions)
    k = len(positions)
    point = Operating(8.0, length, base * (1 + omega), k, positions, 1.0)
    measured = speedup([row(8.0, base * (1 + omega), length)] * 3, table(8.0, base))
    predicted = predicted_speedup(point, table(8.0, base), k)
    assert measured is not None
    assert predicted == pytest.approx(measured.value)
    best = best_lower_k(point, table(8.0, base))
    if k == 1:
        assert best is None
    else:
        assert best is not None
        others = [predicted_speedup(point, table(8.0, base), n) for n in range(1, k)]
        assert best[1] == max(v for v in others if v is not None)
        assert 1 <= best[0] < k


@given(
    st.lists(st.tuples(LOADS, TIMES), min_size=1, max_size=30),
    st.floats(0.5, 2000.0),
)
def test_step_times_stay_within_what_was_measured_or_are_not_known(
    seen: list[tuple[float, float]], load: float
) -> None:
    times = StepTimes()
    for running, seconds in seen:
        times = times.add(row(running, seconds, 1.0))
    points = times.points()
    assert [b for b, _ in points] == sorted(b for b, _ in points)
    found = times.at(load)
    if points[0][0] <= load <= points[-1][0] or (len(points) == 1 and load == points[0][0]):
        assert found is not None
        assert min(t for _, t in points) * 0.999 <= found <= max(t for _, t in points) * 1.001
    if load > 2 * points[-1][0]:
        assert found is None
    assert found is None or math.isfinite(found)


@given(
    st.lists(LOADS, min_size=2, max_size=30),
    st.lists(TIMES, min_size=30, max_size=30),
    st.floats(1.0, 1000.0),
)
def test_steps_that_take_longer_with_load_do_so_beyond_it(
    loads: list[float], seconds: list[float], load: float
) -> None:
    """Beyond the last load the line is carried on a little."""
    times = StepTimes()
    for running, one in zip(sorted(loads), sorted(seconds), strict=False):
        times = times.add(row(running, one, 1.0))
    found, points = times.at(load), times.points()
    assert found is None or found > 0
    if found is not None and load > points[-1][0]:
        assert found >= points[-1][1] * 0.999


@given(st.floats(0.2, 5.0), st.floats(0.2, 5.0), st.floats(0, 0.3), st.floats(0, 0.3))
def test_gains_are_symmetric_about_their_value(a: float, b: float, da: float, db: float) -> None:
    one, two = (
        Estimate(a, a * (1 - da), a * (1 + da), 5),
        Estimate(b, b * (1 - db), b * (1 + db), 9),
    )
    gain = gain_between(one, two)
    assert gain.value == pytest.approx(b / a - 1)
    assert gain.high - gain.value == pytest.approx(gain.value - gain.low, abs=1e-9)
    assert gain.windows == 5


@given(
    st.lists(st.tuples(LOADS, TIMES, LENGTHS, st.floats(20, 1e5)), min_size=1, max_size=8),
)
def test_replicas_keep_tokens_steps_and_seconds(
    parts: list[tuple[float, float, float, float]],
) -> None:
    rows = [row(*p) for p in parts]
    merged = merge_rows(rows)
    assert merged is not None
    assert merged.tokens == pytest.approx(sum(r.tokens for r in rows))
    assert merged.request_steps == pytest.approx(sum(r.request_steps for r in rows))
    assert merged.step_seconds * merged.request_steps == pytest.approx(
        sum(r.step_seconds * r.request_steps for r in rows)
    )


@given(st.floats(0.01, 100), st.floats(0.1, 64), st.floats(0.1, 1e6))
def test_cost_is_linear_in_price_and_inverse_in_speed(
    price: float, gpus: float, rate: float
) -> None:
    one = cost_per_million_tokens(price, gpus, rate)
    assume(one is not None)
    assert one is not None
    assert cost_per_million_tokens(2 * price, gpus, rate) == pytest.approx(2 * one)
    assert cost_per_million_tokens(price, gpus, 2 * rate) == pytest.approx(one / 2)
