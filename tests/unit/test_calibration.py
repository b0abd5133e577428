"""Run lengths and decision intervals against published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from specdrift.core.calibration import (
    arl_one_sided,
    arl_two_sided,
    chi_square_lower,
    decision_interval_for,
)
from specdrift.errors import CalibrationError

THIRTY_DAYS_OF_15_S = 172_800.0


@pytest.mark.parametrize(
    ("shift", "published"),
    [
        (0.0, 465.4435),
        (0.25, 139.4937),
        (0.5, 37.9961),
        (0.75, 17.0483),
        (1.0, 10.3760),
        (1.5, 5.7472),
        (2.0, 4.0089),
        (2.5, 3.1137),
        (3.0, 2.5733),
        (4.0, 2.0126),
    ],
)
def test_two_sided_chart_of_lucas_and_crosier(shift: float, published: float) -> None:
    # 2.573252 was published as 2.5733: the last digit is theirs.
    assert arl_two_sided(0.5, 5.0, shift) == pytest.approx(published, abs=5.1e-5)


@pytest.mark.parametrize(
    ("shift", "published"),
    [(0.0, 430), (0.25, 122), (0.5, 28.7), (0.75, 11.2), (1.0, 6.35), (2.0, 2.36), (4.0, 1.16)],
)
def test_head_start_of_lucas_and_crosier(shift: float, published: float) -> None:
    assert arl_two_sided(0.5, 5.0, shift, head_start=2.5) == pytest.approx(published, rel=4e-3)


def test_one_sided_chart() -> None:
    assert arl_one_sided(0.5, 5.0) == pytest.approx(930.8870, abs=5e-5)


def test_siegmund_is_near_and_not_the_same() -> None:
    b = 5.0 + 1.166
    one_sided = (math.exp(b) - b - 1) / 0.5
    assert one_sided / 2 == pytest.approx(469.11, abs=0.005)
    assert arl_two_sided(0.5, 5.0) == pytest.approx(one_sided / 2, rel=0.01)


@pytest.mark.parametrize(("allowance", "published"), [(0.05, 66.5401), (0.25, 18.7984)])
def test_decision_interval_for_thirty_days(allowance: float, published: float) -> None:
    # The run length at the published interval is exact; its last digit is worth 1e-5 of it.
    assert arl_one_sided(allowance, published) == pytest.approx(THIRTY_DAYS_OF_15_S, rel=4e-5)
    solved = decision_interval_for(allowance, THIRTY_DAYS_OF_15_S)
    # Siegmund serves below an allowance of 0.1 (reference, section 1.4): 0.002 of a sigma off.
    assert solved == pytest.approx(published, abs=2e-3 if allowance < 0.1 else 1e-4)


@pytest.mark.parametrize("allowance", [0.002, 0.02, 0.099, 0.101])
def test_small_allowances_take_no_time_and_are_right(allowance: float) -> None:
    solved = decision_interval_for(allowance, 3e5)
    assert arl_one_sided(allowance, solved) == pytest.approx(3e5, rel=1e-3)


@pytest.mark.parametrize(("allowance", "run_length"), [(0.5, 370.0), (1.0, 5e5), (2.0, 1e6)])
def test_the_decision_interval_gives_the_run_length_asked_for(
    allowance: float, run_length: float
) -> None:
    interval = decision_interval_for(allowance, run_length)
    assert arl_one_sided(allowance, interval) == pytest.approx(run_length, rel=1e-4)


def test_a_single_window_is_the_shortest_memory() -> None:
    # At an allowance of 5 sigma even a bare threshold waits longer than asked.
    interval = decision_interval_for(5.0, 1e6)
    assert 0 < interval < 1e-3
    assert arl_one_sided(5.0, interval) >= 1e6


def test_a_simulation_agrees() -> None:
    rng = np.random.default_rng(20)
    runs, value = np.zeros(4000), np.zeros(4000)
    running = np.ones(4000, dtype=bool)
    for _ in range(700):
        runs += running
        value = np.maximum(0.0, value + rng.standard_normal(4000) + 0.25 - 0.5)
        running &= value < 4.0
        if not running.any():
            break
    expected = arl_one_sided(0.5, 4.0, shift=0.25)
    error = runs.std() / math.sqrt(len(runs))
    assert abs(runs.mean() - expected) < 4 * error
    assert not running.any()


@pytest.mark.parametrize("interval", [0.0, -1.0, math.nan])
def test_no_run_length_without_a_decision_interval(interval: float) -> None:
    with pytest.raises(CalibrationError, match="must be positive"):
        arl_one_sided(0.5, interval)


@pytest.mark.parametrize(
    ("allowance", "run_length"),
    [(0.0, 1e5), (-0.5, 1e5), (math.nan, 1e5), (0.5, 1.0), (0.5, math.inf), (0.5, math.nan)],
)
def test_what_cannot_be_solved_is_said(allowance: float, run_length: float) -> None:
    with pytest.raises(CalibrationError, match="cannot solve"):
        decision_interval_for(allowance, run_length)


@pytest.mark.parametrize("allowance", [8.5, 10.0, 15.0, 40.0])
def test_an_allowance_beyond_the_number_format_is_said(allowance: float) -> None:
    with pytest.raises(CalibrationError, match="too large"):
        decision_interval_for(allowance, 1e6)


@pytest.mark.parametrize("degrees", [11, 44, 100, 5999])
def test_lower_chi_square(degrees: int) -> None:
    assert chi_square_lower(degrees) == pytest.approx(chi2.ppf(0.1, degrees), rel=2e-3)
