"""Average run length of normal CUSUM charts, and the decision interval for a wanted one.

The one-sided chart is S <- max(0, S + z - allowance) with z ~ N(shift, 1), alarm at
S >= decision_interval. Its average run length from s solves the Fredholm equation

    L(s) = 1 + L(0) Phi(a - s) + integral_0^h L(u) phi(u + a - s) du

(Page 1954; Lucas and Crosier 1982), solved here by Gauss-Legendre quadrature. Two-sided charts
combine by 1/ARL = 1/ARL_upper + 1/ARL_lower (Kemp 1961).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import ndtr

from specdrift.errors import CalibrationError

NODES_PER_SIGMA = 8
FEWEST_NODES = 48
MOST_NODES = 1200
LARGEST_INTERVAL = 1000.0
# Accuracy of log ARL: a billionth of the run length.
SOLVED = 1e-9
SMALL_ALLOWANCE = 0.1
_SQRT_2PI = math.sqrt(2.0 * math.pi)


def arl_one_sided(
    allowance: float, decision_interval: float, shift: float = 0.0, head_start: float = 0.0
) -> float:
    """Return the average number of windows until the one-sided chart signals.

    Args:
        allowance: In standard deviations of one observation.
        decision_interval: In standard deviations.
        shift: Mean of the standardised observation.
        head_start: Starting value of the statistic, in the units of `decision_interval`.

    Raises:
        CalibrationError: If the decision interval is not positive.
    """
    if not decision_interval > 0:
        raise CalibrationError(
            "cannot compute an average run length",
            where=f"decision_interval={decision_interval}",
            why="the decision interval must be positive",
        )
    nodes = int(min(MOST_NODES, max(FEWEST_NODES, NODES_PER_SIGMA * decision_interval)))
    points, weights = leggauss(nodes)
    u = 0.5 * decision_interval * (points + 1.0)
    w = 0.5 * decision_interval * weights
    starts = np.concatenate(([0.0], u))
    # Row i: equation for L(starts[i]); unknowns L(0), L(u_1..n).
    offset = allowance - shift
    kernel = np.exp(-0.5 * (u[None, :] + offset - starts[:, None]) ** 2) / _SQRT_2PI * w[None, :]
    system = np.eye(nodes + 1)
    system[:, 0] -= ndtr(offset - starts)
    system[:, 1:] -= kernel
    try:
        solution = np.linalg.solve(system, np.ones(nodes + 1))
    except np.linalg.LinAlgError as error:  # every step but a return to zero is too rare
        raise _too_large(allowance, decision_interval) from error
    if not solution[0] >= 1.0:
        raise _too_large(allowance, decision_interval)
    s = head_start
    row = np.exp(-0.5 * (u + offset - s) ** 2) / _SQRT_2PI * w
    return float(1.0 + solution[0] * ndtr(offset - s) + row @ solution[1:])


def _too_large(allowance: float, decision_interval: float) -> CalibrationError:
    return CalibrationError(
        "cannot compute an average run length",
        where=f"allowance={allowance}, decision_interval={decision_interval}",
        why="the allowance is too large for the number format",
    )


def arl_two_sided(
    allowance: float, decision_interval: float, shift: float = 0.0, head_start: float = 0.0
) -> float:
    """Return the average run length of the two-sided chart (both sides alike).

    With a head start on both sides, the combination is
    (U_s L_0 + L_s U_0 - U_0 L_0) / (U_0 + L_0) (Lucas and Crosier 1982).
    """
    upper0 = arl_one_sided(allowance, decision_interval, shift)
    lower0 = arl_one_sided(allowance, decision_interval, -shift)
    if head_start == 0.0:
        return 1.0 / (1.0 / upper0 + 1.0 / lower0)
    upper = arl_one_sided(allowance, decision_interval, shift, head_start)
    lower = arl_one_sided(allowance, decision_interval, -shift, head_start)
    return (upper * lower0 + lower * upper0 - upper0 * lower0) / (upper0 + lower0)


@lru_cache(maxsize=512)
def decision_interval_for(allowance: float, average_run_length: float) -> float:
    """Return the one-sided decision interval whose in-control run length is as asked.

    Args:
        allowance: In standard deviations, at least 0.001.
        average_run_length: Wanted mean number of windows between false alarms, above 1.

    Raises:
        CalibrationError: If no decision interval up to 1000 reaches it.
    """
    if not (allowance >= 0.001 and average_run_length > 1 and math.isfinite(average_run_length)):
        raise CalibrationError(
            "cannot solve for a decision interval",
            where=f"allowance={allowance}, average run length={average_run_length}",
            why="the allowance must be at least 0.001 and the run length finite and above 1",
        )
    if allowance <= SMALL_ALLOWANCE:
        # Siegmund's approximation is within 0.002 of the exact interval here, and takes no time.
        return _siegmund(allowance, average_run_length)
    target = math.log(average_run_length)
    low, high = 1e-6, _siegmund(allowance, average_run_length) + 1.0
    below = math.log(arl_one_sided(allowance, low)) - target
    if below >= 0:
        return low
    while (above := math.log(arl_one_sided(allowance, high)) - target) < 0:
        low, below = high, above
        high *= 1.5
        if high > LARGEST_INTERVAL:
            raise CalibrationError(
                "cannot solve for a decision interval",
                where=f"allowance={allowance}, average run length={average_run_length}",
                why=f"it would exceed {LARGEST_INTERVAL:g} standard deviations",
                hint="a shorter false-alarm interval or a larger smallest drop",
            )
    # log ARL is nearly straight in the decision interval: regula falsi (Illinois) takes a few
    # steps where bisection takes thirty, and each is a linear solve.
    side = 0
    middle = high
    for _ in range(60):
        middle = high - above * (high - low) / (above - below)
        value = math.log(arl_one_sided(allowance, middle)) - target
        if abs(value) < SOLVED or high - low < SOLVED * high:
            break
        if value < 0:
            low, below = middle, value
            above = above / 2 if side < 0 else above
            side = -1
        else:
            high, above = middle, value
            below = below / 2 if side > 0 else below
            side = 1
    return middle


def _siegmund(allowance: float, average_run_length: float) -> float:
    """Return a first guess from ARL = (exp(2ab) - 2ab - 1) / (2a^2), b = h + 1.166."""
    b = 2.0
    for _ in range(50):
        goal = math.log(average_run_length * 2 * allowance**2 + 2 * allowance * b + 1)
        b = goal / (2 * allowance)
    return max(0.1, b - 1.166)


def chi_square_lower(degrees: int, probability_z: float = -1.2816) -> float:
    """Return an approximate lower chi-square quantile (Wilson and Hilferty 1931).

    Args:
        degrees: Degrees of freedom.
        probability_z: Normal quantile of the wanted probability; the default is 10%.
    """
    c = 2.0 / (9.0 * degrees)
    return float(degrees * max(1e-6, 1.0 - c + probability_z * math.sqrt(c)) ** 3)
