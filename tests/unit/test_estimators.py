"""Baselines, long-run factor, and the split of a change into mix and within."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specdrift.core.estimators import (
    FEWEST_WINDOWS,
    GUARD_CONSTANT,
    Share,
    decompose,
    learn_baseline,
    long_run_factor,
    per_position_acceptance,
)
from tests.support.observations import counts


def share(name: str, tokens: float, acceptance: float) -> Share:
    return Share(name, tokens, tokens * acceptance)


def learn(rng: np.random.Generator, n: int, *, level: float, sd: float, drafts: float = 120.0):
    seen = counts(rng, [level] * n, sd=sd, drafts=drafts)
    return learn_baseline(
        [d for d, _, _ in seen], [a / t for _, t, a in seen], num_speculative_tokens=3
    )


def test_too_few_windows_are_no_baseline() -> None:
    args = {"num_speculative_tokens": 3.0}
    assert (
        learn_baseline([10.0] * (FEWEST_WINDOWS - 1), [0.5] * (FEWEST_WINDOWS - 1), **args) is None
    )
    assert learn_baseline([10.0] * FEWEST_WINDOWS, [0.5] * FEWEST_WINDOWS, **args) is not None


def test_level_and_spread_come_back() -> None:
    baseline = learn(np.random.default_rng(1), 2000, level=0.55, sd=0.03)
    assert baseline is not None
    assert baseline.acceptance == pytest.approx(0.55, abs=4 * baseline.standard_error)
    # v(D) = a / D + tau^2; at this D the true variance is p q / (K D) (1 - 1/n) + sd^2.
    true = 0.55 * 0.45 / 360 + 0.03**2
    assert baseline.variance(120.0) == pytest.approx(true, rel=0.12)
    assert baseline.long_run_factor < 1.6
    assert 1.0 <= baseline.safety_factor < 1.1
    assert baseline.windows == 2000


def test_the_two_parts_of_the_variance_are_told_apart_by_the_size_of_windows() -> None:
    rng = np.random.default_rng(2)
    small = counts(rng, [0.5] * 2000, sd=0.05, drafts=20)
    large = counts(rng, [0.5] * 2000, sd=0.05, drafts=2000)
    seen = [c for pair in zip(small, large, strict=True) for c in pair]
    baseline = learn_baseline(
        [d for d, _, _ in seen], [a / t for _, t, a in seen], num_speculative_tokens=3
    )
    assert baseline is not None
    assert math.sqrt(baseline.variance_between) == pytest.approx(0.05, rel=0.1)
    assert baseline.variance_within == pytest.approx(0.25 / 3, rel=0.3)


def test_a_mixture_is_over_dispersed_compared_with_the_binomial() -> None:
    baseline = learn(np.random.default_rng(3), 400, level=0.35, sd=0.056)
    assert baseline is not None
    binomial = 0.35 * 0.65 / 360
    assert baseline.variance(120.0) > 2.5 * binomial
    assert baseline.information(120.0) < 1 / baseline.variance(120.0)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_constant_phase_one_is_not_certainty(level: float) -> None:
    baseline = learn_baseline([100.0] * 45, [level] * 45, num_speculative_tokens=3)
    assert baseline is not None
    assert baseline.acceptance == pytest.approx(level)
    assert baseline.variance_within > 0
    assert baseline.standard_error > 0
    assert math.isfinite(baseline.mean_information)
    # No better known than a binomial of as many tokens with one surprise in it would be.
    assert baseline.information(100.0) <= 300 / (0.5 / 46 * (1 - 0.5 / 46))


def test_a_longer_phase_one_knows_better() -> None:
    rng = np.random.default_rng(4)
    short, long = learn(rng, 45, level=0.5, sd=0.03), learn(rng, 900, level=0.5, sd=0.03)
    assert short is not None
    assert long is not None
    assert long.standard_error < 0.5 * short.standard_error
    assert GUARD_CONSTANT < long.guard < short.guard
    assert long.safety_factor < short.safety_factor


def test_fill_counts_windows_without_traffic() -> None:
    baseline = learn_baseline(
        [50.0] * 30, [0.4, 0.5] * 15, num_speculative_tokens=3, empty_windows=90
    )
    assert baseline is not None
    assert baseline.fill == 0.25


def test_independent_windows_have_no_long_run_factor_to_speak_of() -> None:
    x = np.random.default_rng(5).normal(0.5, 0.03, 4000)
    assert 1.0 <= long_run_factor(x, np.full(4000, 1 / 0.03**2)) < 1.5


def test_overlapping_requests_have_one() -> None:
    noise = np.random.default_rng(6).normal(0.0, 0.03, 4040)
    x = 0.5 + np.convolve(noise, np.ones(20) / math.sqrt(20), "valid")[:4000]
    # A moving sum of 20 equal parts: the variance of long means is 20 times that of one.
    assert 8 < long_run_factor(x, np.full(4000, 1 / 0.03**2)) < 30


def test_a_slow_wander_of_the_level_is_none() -> None:
    rng = np.random.default_rng(7)
    day = 0.015 * np.sin(np.arange(5760) / 5760 * 2 * math.pi)
    x = 0.5 + day + rng.normal(0.0, 0.03, 5760)
    assert long_run_factor(x, np.full(5760, 1 / 0.03**2)) < 1.6


def test_a_blend_is_weighted_by_draft_tokens() -> None:
    both = [share("chat", 700, 0.7), share("code", 300, 0.4)]
    change = decompose(both, both)
    assert change is not None
    assert change.before == pytest.approx(0.61)
    assert change.after == pytest.approx(0.61)
    assert change.mix == pytest.approx(0, abs=1e-15)
    assert change.within == pytest.approx(0, abs=1e-15)
    assert change.distance == pytest.approx(0, abs=1e-15)


def test_a_pure_change_of_mix() -> None:
    change = decompose(
        [share("chat", 500, 0.7), share("code", 500, 0.4)],
        [share("chat", 200, 0.7), share("code", 800, 0.4)],
    )
    assert change is not None
    assert change.after - change.before == pytest.approx(-0.09)
    assert change.mix == pytest.approx(-0.09)
    assert change.within == pytest.approx(0, abs=1e-15)
    assert change.distance == pytest.approx(0.3)
    assert change.shares == (
        ("chat", 0.5, pytest.approx(0.2)),
        ("code", 0.5, pytest.approx(0.8)),
    )


def test_a_pure_change_within_a_class() -> None:
    change = decompose(
        [share("chat", 700, 0.7), share("code", 300, 0.4)],
        [share("chat", 70, 0.7), share("code", 30, 0.1)],
    )
    assert change is not None
    assert change.mix == pytest.approx(0, abs=1e-15)
    assert change.within == pytest.approx(-0.09)


def test_a_class_without_a_baseline_makes_the_within_part_not_estimable() -> None:
    change = decompose([share("code", 100, 0.6)], [share("code", 80, 0.6), share("chat", 20, 0.2)])
    assert change is not None
    assert change.unknown == ("chat",)
    assert change.within is None


def test_a_class_that_left_is_known() -> None:
    change = decompose([share("code", 50, 0.6), share("chat", 50, 0.2)], [share("code", 9, 0.6)])
    assert change is not None
    assert change.unknown == ()
    assert change.mix == pytest.approx(0.2)


@pytest.mark.parametrize("side", [[], [Share("code", 0.0, 0.0)]])
def test_nothing_to_compare_with_is_none(side: list[Share]) -> None:
    there = [share("code", 10, 0.5)]
    assert decompose(side, there) is None
    assert decompose(there, side) is None


def test_acceptance_of_nothing_is_unknown() -> None:
    assert Share("code", 0.0, 0.0).acceptance is None
    assert per_position_acceptance(0.0, (0.0, 0.0)) == ()
    assert per_position_acceptance(10.0, (5.0, 2.0)) == (0.5, 0.2)
