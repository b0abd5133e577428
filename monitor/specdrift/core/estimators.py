"""Variance, baseline and effect of acceptance, from windows of counts.

The unit of information is the window: `drafts` D and the acceptance x = accepted / draft tokens.
Tokens of one request are correlated, so a binomial variance is far too small; the variance of x is
v(D) = a / D + tau^2 (beta-binomial form), times a long-run factor F for correlation over time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdrift.core.calibration import chi_square_lower

Array = NDArray[np.float64]

FEWEST_WINDOWS = 12
# One-sided 90% bound on the baseline plus what a person would call no difference (reference 1.5).
GUARD_Z = 1.2816
GUARD_CONSTANT = 0.005
LARGEST_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Baseline:
    """What Phase I learned about one class.

    Attributes:
        acceptance: Level p0, accepted tokens per draft token.
        standard_error: Of p0, correlation over time included.
        variance_within: a in v(D) = a / D + tau^2 (per draft).
        variance_between: tau^2.
        long_run_factor: F >= 1, from differenced block means.
        safety_factor: Factor >= 1 on the variance for the little that was seen of it.
        mean_information: Mean of 1 / (v(D) F safety) over windows with traffic.
        fill: Share of windows with traffic.
        windows: Number of windows with traffic in Phase I.
    """

    acceptance: float
    standard_error: float
    variance_within: float
    variance_between: float
    long_run_factor: float
    safety_factor: float
    mean_information: float
    fill: float
    windows: int

    def variance(self, drafts: float) -> float:
        """Return v(D) for a window of `drafts` drafts (before the long-run factor)."""
        return self.variance_within / drafts + self.variance_between

    def information(self, drafts: float) -> float:
        """Return the information of a window: 1 / (v(D) F safety)."""
        return 1.0 / (self.variance(drafts) * self.long_run_factor * self.safety_factor)

    @property
    def guard(self) -> float:
        """Return how far acceptance may fall short of p0 before it counts at all."""
        return GUARD_Z * self.standard_error + GUARD_CONSTANT


def learn_baseline(
    drafts: Sequence[float],
    acceptance: Sequence[float],
    *,
    num_speculative_tokens: float,
    empty_windows: int = 0,
) -> Baseline | None:
    """Fit a baseline to Phase I windows with traffic, or None when there are too few.

    Args:
        drafts: Drafts per window, all positive.
        acceptance: Accepted / draft tokens per window.
        num_speculative_tokens: Mean draft tokens per draft, for the binomial floor of the
            variance (a constant Phase I must not mean certainty).
        empty_windows: Windows without traffic seen meanwhile.
    """
    n = len(drafts)
    if n < FEWEST_WINDOWS:
        return None
    d = np.asarray(drafts, dtype=float)
    x = np.asarray(acceptance, dtype=float)
    within, between = _moments(d, x, max(1.0, num_speculative_tokens))
    variances = within / d + between
    weights = 1.0 / variances
    level = float(np.average(x, weights=weights))
    factor = long_run_factor(x, weights)
    safety = (n - 1) / chi_square_lower(n - 1)
    information = weights / (factor * safety)
    return Baseline(
        acceptance=level,
        standard_error=math.sqrt(1.0 / float(information.sum())),
        variance_within=within,
        variance_between=between,
        long_run_factor=factor,
        safety_factor=safety,
        mean_information=float(information.mean()),
        fill=n / (n + empty_windows),
        windows=n,
    )


def _moments(d: Array, x: Array, tokens_per_draft: float) -> tuple[float, float]:
    """Fit v(D) = a / D + tau^2 by iteratively reweighted least squares on squared residuals.

    `a` is kept at or above the binomial variance per draft, tau^2 at or above 0.
    """
    n = len(x)
    level = float(np.average(x, weights=d))
    shrunk = (level * n + 0.5) / (n + 1.0)  # an all-zero or all-one Phase I still has a variance
    floor = max(shrunk * (1.0 - shrunk), 1e-6) / tokens_per_draft
    within, between = floor, 0.0
    for _ in range(20):
        variances = within / d + between
        level = float(np.average(x, weights=1.0 / variances))
        squares = (x - level) ** 2 * n / (n - 1)
        w = 1.0 / variances**2
        columns = np.stack([1.0 / d, np.ones(n)])
        normal = (columns * w) @ columns.T
        right = (columns * w) @ squares
        determinant = normal[0, 0] * normal[1, 1] - normal[0, 1] ** 2
        if determinant > 1e-9 * normal[0, 0] * normal[1, 1]:
            a, tau2 = np.linalg.solve(normal, right)
        else:
            a, tau2 = right[0] / normal[0, 0], 0.0
        if a < floor:
            a = floor
            tau2 = float(np.average(squares - a / d, weights=w))
        if tau2 < 0:
            tau2 = 0.0
            a = max(floor, right[0] / normal[0, 0])
        if abs(a - within) <= 1e-9 * within and abs(tau2 - between) <= 1e-12:
            break
        within, between = float(a), float(tau2)
    return within, between


def long_run_factor(x: Array, weights: Array) -> float:
    """Return F >= 1: how much more block means vary than independent windows would.

    First differences of precision-weighted block means, so that a slow wander of the level does
    not count (reference, section 1.3); blocks of 1, 2, 4, ... up to a tenth of the series.
    """
    factor = 1.0
    size = 1
    while size <= min(LARGEST_BLOCK, len(x) // 10):
        count = len(x) // size
        w = weights[: count * size].reshape(count, size)
        means = (w * x[: count * size].reshape(count, size)).sum(axis=1) / w.sum(axis=1)
        expected = 1.0 / w.sum(axis=1)
        squares = np.diff(means) ** 2 / (expected[1:] + expected[:-1])
        factor = max(factor, float(squares.mean()))
        size *= 2
    return factor


@dataclass(frozen=True, slots=True)
class Share:
    """One class's part of the speculated tokens: `draft_tokens` and its acceptance."""

    traffic_class: str
    draft_tokens: float
    accepted_tokens: float

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens per draft token, or None without a draft token."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens > 0 else None


@dataclass(frozen=True, slots=True)
class MixChange:
    """A change of the blended rate, split into mix and within-class parts.

    Attributes:
        before, after: Blended acceptance.
        mix: Part that comes from shares of draft tokens alone.
        within: Part that comes from the classes' own rates; None when a class that matters has
            no rate on one of the sides (then it is not estimable).
        distance: Total-variation distance of the shares, 0 to 1.
        shares: class -> (share before, share after) of draft tokens.
        unknown: Classes that have no rate before (no baseline yet).
    """

    before: float
    after: float
    mix: float | None
    within: float | None
    distance: float
    shares: tuple[tuple[str, float, float], ...]
    unknown: tuple[str, ...]


def decompose(before: Sequence[Share], after: Sequence[Share]) -> MixChange | None:
    """Split the change of the blended acceptance into mix and within-class parts.

    Blended rate = sum of share x rate; with midpoint weights the two parts add up exactly:
    mix = sum (s1 - s0)(r0 + r1)/2 and within = sum (r1 - r0)(s0 + s1)/2. Returns None when one
    side has no draft token at all.
    """
    old = {s.traffic_class: s for s in before if s.draft_tokens > 0}
    new = {s.traffic_class: s for s in after if s.draft_tokens > 0}
    total0 = sum(s.draft_tokens for s in old.values())
    total1 = sum(s.draft_tokens for s in new.values())
    if total0 <= 0 or total1 <= 0:
        return None
    mix = within = 0.0
    unknown, shares = [], []
    for name in sorted(old.keys() | new.keys()):
        s0 = old[name].draft_tokens / total0 if name in old else 0.0
        s1 = new[name].draft_tokens / total1 if name in new else 0.0
        shares.append((name, s0, s1))
        r0 = old[name].acceptance if name in old else None
        r1 = new[name].acceptance if name in new else None
        if r0 is None and s1 > 0.02:
            unknown.append(name)
        r0 = r1 if r0 is None else r0
        r1 = r0 if r1 is None else r1
        if r0 is None or r1 is None:
            continue
        mix += (s1 - s0) * (r0 + r1) / 2
        within += (r1 - r0) * (s0 + s1) / 2
    return MixChange(
        before=sum(s.accepted_tokens for s in old.values()) / total0,
        after=sum(s.accepted_tokens for s in new.values()) / total1,
        mix=mix,
        within=None if unknown else within,
        distance=0.5 * sum(abs(s1 - s0) for _, s0, s1 in shares),
        shares=tuple(shares),
        unknown=tuple(unknown),
    )


def per_position_acceptance(drafts: float, per_position: Sequence[float]) -> tuple[float, ...]:
    """Return S_j = A_j / D, the share of drafts whose position j was accepted (0-based j)."""
    return tuple(a / drafts for a in per_position) if drafts > 0 else ()
