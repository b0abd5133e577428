"""What speculation was worth over recorded windows, against step times recorded without it.

Two recordings of one server, one with speculation and one without: T(B, 0) is learned from the
second, and the first is judged at its own loads. Nothing is carried over to loads that the
reference never saw: there the answer is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specdrift.conventions import BATCH_BUCKETS
from specdrift.core.economics import (
    BINS_PER_OCTAVE,
    TABLE_ERROR,
    Estimate,
    Operating,
    SpeedRow,
    StepTimes,
    merge_rows,
    speed_row,
    speedup,
)
from specdrift.core.latency import batch_bucket
from specdrift.core.windows import NO_SPEC, Window, WindowState, add_spec

SLICE_SECONDS = 5.0
# A window whose running requests change by more than this share of its mean (and by more than a
# few) begins or ends a load: its mean load is no load that the engine ran at.
STEADY_SHARE = 0.5
STEADY_REQUESTS = 2.0
# Tukey's bisquare: a window further than this many robust standard deviations from its
# neighbours in load has no weight.
BISQUARE = 4.685
SMALLEST_SPREAD = 0.01
# Windows from which the noise of a slice with fewer than three windows is taken.
NEIGHBOURS = 8
FEWEST_DIFFERENCES = 4
# 2.2 instead of 1.96: few windows, and neighbours share requests (as in economics).
MARGIN = 2.2
# Below this share of steps with a draft, tokens proposed per step stand in for K.
FULL_COVERAGE = 0.95
# Share of a bucket's steps at loads that the reference knows, for the bucket to be judged.
FEWEST_COVERED = 0.5
# Runs of fewer slices than this are noise between two longer ones of the same verdict.
SHORTEST_RUN = 3

Array = NDArray[np.float64]


class Benefit(StrEnum):
    """Whether speculation paid: the interval of the speedup against 1."""

    PAYS = "pays"
    LOSES = "loses"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Sample:
    """One window with its speed, and whether its load stood still."""

    window: Window
    row: SpeedRow
    steady: bool


@dataclass(frozen=True, slots=True)
class Slice:
    """A few seconds of traffic. `start` and `end` are on the recording's clock.

    Attributes:
        speedup: Time per token without speculation at the same load over the measured one; None
            where the reference has no such load.
        low, high: Its 95% interval; None where the noise is not known.
    """

    start: float
    end: float
    running: float | None
    acceptance: float | None
    speedup: float | None
    low: float | None
    high: float | None
    verdict: Benefit
    rows: tuple[SpeedRow, ...] = ()
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """Slices in a row with one verdict, taken together.

    Attributes:
        others: How many of its `slices` have another verdict by themselves.
    """

    start: float
    end: float
    running: float | None
    acceptance: float | None
    speedup: Estimate | None
    verdict: Benefit
    slices: int
    others: int = 0


@dataclass(frozen=True, slots=True)
class Bucket:
    """Step time with and without speculation in one batch bucket, at the same loads.

    Attributes:
        num_speculative_tokens: K.
        draft_tokens_per_step: Tokens proposed per request and step: K where every step drafts.
        running: Mean load of its windows.
        overhead: step_seconds / reference_step_seconds - 1.
        acceptance: What was accepted there.
        break_even_acceptance, low, high: Acceptance above which it pays, with its 95% interval.
    """

    batch_bucket: str
    num_speculative_tokens: int
    draft_tokens_per_step: float
    running: float
    step_seconds: float
    reference_step_seconds: float | None
    overhead: float | None
    acceptance: float | None
    break_even_acceptance: float | None
    low: float | None
    high: float | None
    windows: int


# --- samples and reference --------------------------------------------------------------------


def samples(windows: Iterable[Window], *, speculation: bool) -> tuple[Sample, ...]:
    """Return the windows with a speed, of those with speculation on or of those with it off."""
    wanted = WindowState.OK if speculation else WindowState.SPECULATION_OFF
    before: dict[str, float | None] = {}
    found = []
    for window in windows:
        running = before.get(window.instance)
        before[window.instance] = window.running
        if window.state is not wanted:
            continue
        row = speed_row(window)
        if row is not None:
            found.append(Sample(window, row, _steady(running, window.running, row)))
    return tuple(found)


def _steady(before: float | None, after: float | None, row: SpeedRow) -> bool:
    if before is None or after is None:
        return True
    return abs(after - before) <= STEADY_SHARE * row.running + STEADY_REQUESTS


def reference_times(windows: Iterable[Window]) -> StepTimes:
    """Return T(B, 0) from the windows with speculation off: robust means by load.

    Windows that begin or end a load are left out where others remain; of those at about the same
    load, a slow one (a burst of prefills) weighs little.
    """
    rows = [s.row for s in _preferring_steady(samples(windows, speculation=False))]
    by_bin: dict[int, list[SpeedRow]] = {}
    for row in rows:
        index = math.floor(BINS_PER_OCTAVE * math.log2(max(row.running, 1.0)) + 0.5)
        by_bin.setdefault(index, []).append(row)
    bins = {}
    for index, listed in by_bin.items():
        seconds = np.array([r.step_seconds for r in listed])
        weights = _robust_weights(seconds, np.array([r.request_steps for r in listed]))
        loads = np.array([r.running for r in listed])
        bins[index] = (
            float(weights.sum()),
            float((weights * loads).sum()),
            float((weights * seconds).sum()),
        )
    return StepTimes(bins)


def _preferring_steady(found: Sequence[Sample]) -> Sequence[Sample]:
    steady = [s for s in found if s.steady]
    return steady or found


def _robust_weights(values: Array, weights: Array) -> Array:
    """Return weights x Tukey's bisquare of each value's distance from the weighted median."""
    middle = _weighted_median(values, weights)
    spread = 1.4826 * _weighted_median(np.abs(values - middle), weights)
    scale = BISQUARE * max(spread, SMALLEST_SPREAD * abs(middle))
    inside = np.clip(1.0 - ((values - middle) / scale) ** 2, 0.0, None)
    return weights * inside**2


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    heights = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(heights, 0.5 * heights[-1])])


# --- over time --------------------------------------------------------------------------------


def timeline(
    windows: Sequence[Window], reference: StepTimes, seconds: float = SLICE_SECONDS
) -> tuple[Slice, ...]:
    """Return one slice per consecutive `seconds` with traffic.

    Slices end at the scrape nearest to their length; a longer window is a slice of its own.
    Windows of a restart, of an engine away or with speculation off are in none.
    """
    slices: list[Slice] = []
    earlier: list[SpeedRow] = []
    for group in _groups(windows, seconds):
        found = samples(group, speculation=True)
        spec = NO_SPEC
        for window in group:
            spec = add_spec(spec, window.spec or NO_SPEC)
        if spec.draft_tokens <= 0 and not found:
            continue
        rows = tuple(s.row for s in found)
        merged = merge_rows(rows)
        estimate = speedup(rows, reference)
        value, bounds = (
            (estimate.value, (estimate.low, estimate.high))
            if estimate is not None
            else _of_few(rows, earlier, reference)
        )
        earlier = [*earlier, *rows][-NEIGHBOURS:]
        slices.append(
            Slice(
                start=min(w.start for w in group),
                end=max(w.end for w in group),
                running=merged.running if merged else None,
                acceptance=_ratio(spec.accepted_tokens, spec.draft_tokens),
                speedup=value,
                low=bounds[0] if bounds else None,
                high=bounds[1] if bounds else None,
                verdict=_verdict(bounds),
                rows=rows,
                draft_tokens=spec.draft_tokens,
                accepted_tokens=spec.accepted_tokens,
            )
        )
    return tuple(slices)


def _groups(windows: Sequence[Window], seconds: float) -> list[list[Window]]:
    """Split the windows with speculation on into stretches of `seconds`, to the nearest window."""
    groups: list[list[Window]] = []
    for window in windows:
        if window.state not in (WindowState.OK, WindowState.NO_TRAFFIC):
            continue
        start = min(w.start for w in groups[-1]) if groups else -math.inf
        # When half of this window is beyond the end, it begins the next stretch.
        if window.end - start > seconds + 0.5 * window.seconds:
            groups.append([])
        groups[-1].append(window)
    return groups


def _of_few(
    rows: Sequence[SpeedRow], earlier: Sequence[SpeedRow], reference: StepTimes
) -> tuple[float | None, tuple[float, float] | None]:
    """Return the speedup of one or two windows, its noise taken from the windows before.

    Windows scraped every 15 s leave one to a slice: differences of neighbours tell the noise and
    do not mistake a drift for it.
    """
    speeds = [_speed(row, reference) for row in rows]
    known = [row for row, speed in zip(rows, speeds, strict=True) if speed is not None]
    merged = merge_rows(known)
    value = _pooled(known, reference) if merged else None
    if value is None:
        return None, None
    ratios = [s for r in (*earlier, *rows) if (s := _speed(r, reference)) is not None]
    steps = [(b - a) / value for a, b in pairwise(ratios)]
    if len(steps) < FEWEST_DIFFERENCES:
        return value, None
    noise = math.sqrt(sum(d * d for d in steps) / (2 * len(steps)) / len(known))
    margin = MARGIN * value * math.hypot(noise, TABLE_ERROR)
    return value, (value - margin, value + margin)


def _speed(row: SpeedRow, reference: StepTimes) -> float | None:
    base = reference.at(row.running)
    return None if base is None else base / row.seconds_per_token


def _pooled(rows: Sequence[SpeedRow], reference: StepTimes) -> float | None:
    bases = [reference.at(row.running) for row in rows]
    top = sum(b * r.tokens for b, r in zip(bases, rows, strict=True) if b is not None)
    bottom = sum(r.step_seconds * r.request_steps for r in rows)
    return top / bottom if top > 0 and bottom > 0 else None


def _verdict(bounds: tuple[float, float] | None) -> Benefit:
    if bounds is None or bounds[0] <= 1 <= bounds[1]:
        return Benefit.UNCLEAR
    return Benefit.PAYS if bounds[0] > 1 else Benefit.LOSES


def _ratio(top: float, bottom: float) -> float | None:
    return top / bottom if bottom > 0 else None


def runs(slices: Sequence[Slice], reference: StepTimes) -> tuple[Run, ...]:
    """Return stretches of one verdict; a moment of doubt inside one does not end it."""
    groups: list[list[Slice]] = []
    for each in slices:
        if groups and groups[-1][-1].verdict is each.verdict:
            groups[-1].append(each)
        else:
            groups.append([each])
    groups = _absorbed(groups)
    return tuple(_run(group, reference) for group in groups)


def _main(group: Sequence[Slice]) -> Benefit:
    """Return the verdict that most slices of a group have."""
    verdicts = [s.verdict for s in group]
    return max(Benefit, key=verdicts.count)


def _absorbed(groups: list[list[Slice]]) -> list[list[Slice]]:
    """Join two stretches of one verdict over a short one between them, as often as possible."""
    i = 1
    while i < len(groups) - 1:
        before, here, after = groups[i - 1], groups[i], groups[i + 1]
        same = _main(before) is _main(after)
        if same and len(here) < SHORTEST_RUN and len(here) < min(len(before), len(after)) + 1:
            groups[i - 1 : i + 2] = [before + here + after]
            i = max(1, i - 1)
        else:
            i += 1
    return groups


def _run(group: Sequence[Slice], reference: StepTimes) -> Run:
    rows = [row for s in group for row in s.rows]
    merged = merge_rows(rows)
    verdict = _main(group)
    return Run(
        start=group[0].start,
        end=group[-1].end,
        running=merged.running if merged else None,
        acceptance=_ratio(
            sum(s.accepted_tokens for s in group), sum(s.draft_tokens for s in group)
        ),
        speedup=speedup(rows, reference),
        verdict=verdict,
        slices=len(group),
        others=sum(s.verdict is not verdict for s in group),
    )


# --- by load ----------------------------------------------------------------------------------


def buckets(windows: Sequence[Window], reference: StepTimes) -> tuple[Bucket, ...]:
    """Return step times and break-even acceptance by batch bucket, and by K where K changed."""
    groups: dict[tuple[int, int], list[Sample]] = {}
    for sample in samples(windows, speculation=True):
        k = sample.window.num_speculative_tokens or 0
        place = BATCH_BUCKETS.index(batch_bucket(sample.row.running))
        groups.setdefault((place, k), []).append(sample)
    return tuple(
        _bucket(BATCH_BUCKETS[place], k, _preferring_steady(found), reference)
        for (place, k), found in sorted(groups.items())
    )


def _bucket(name: str, k: int, found: Sequence[Sample], reference: StepTimes) -> Bucket:
    rows = [s.row for s in found]
    spec = NO_SPEC
    for sample in found:
        spec = add_spec(spec, sample.window.spec or NO_SPEC)
    steps = sum(r.request_steps for r in rows)
    proposed = spec.draft_tokens / steps
    if k and spec.drafts >= FULL_COVERAGE * steps and proposed >= FULL_COVERAGE * k:
        proposed = float(k)
    known = [(base, row) for row in rows if (base := reference.at(row.running)) is not None]
    result = Bucket(
        batch_bucket=name,
        num_speculative_tokens=k or round(proposed),
        draft_tokens_per_step=proposed,
        running=sum(r.running * r.request_steps for r in rows) / steps,
        step_seconds=sum(r.step_seconds * r.request_steps for r in rows) / steps,
        reference_step_seconds=None,
        overhead=None,
        acceptance=_ratio(spec.accepted_tokens, spec.draft_tokens),
        break_even_acceptance=None,
        low=None,
        high=None,
        windows=len(rows),
    )
    if sum(r.request_steps for _, r in known) < FEWEST_COVERED * steps or proposed <= 0:
        return result
    bases = np.array([base for base, _ in known])
    seconds = np.array([row.step_seconds for _, row in known])
    loads = np.array([row.running for _, row in known])
    weights = _robust_weights(seconds / bases, np.array([r.request_steps for _, r in known]))
    weights /= weights.sum()
    base, here = float(weights @ bases), float(weights @ seconds)
    omega = here / base - 1.0
    result = replace(
        result,
        running=float(weights @ loads),
        step_seconds=here,
        reference_step_seconds=base,
        overhead=omega,
        break_even_acceptance=omega / proposed,
        windows=len(known),
    )
    n = len(known)
    if n < 3:
        return result
    residuals = weights * (seconds - here / base * bases)
    noise = math.sqrt(float(residuals @ residuals) * n / (n - 1)) / here
    margin = MARGIN * math.hypot(noise, TABLE_ERROR) * here / base
    return replace(result, low=(omega - margin) / proposed, high=(omega + margin) / proposed)


# --- predictions ------------------------------------------------------------------------------


def extended_positions(positions: Sequence[float], k: int) -> tuple[float, ...]:
    """Return acceptance by position up to `k`: measured as far as it goes, geometric beyond.

    Beyond, each position is accepted less often than the one before by the mean factor of the
    measured ones: a guess, where the measured part is exact.
    """
    if k <= len(positions) or len(positions) < 2 or min(positions) <= 0:
        return tuple(positions[:k])
    factor = (positions[-1] / positions[0]) ** (1.0 / (len(positions) - 1))
    beyond = [positions[-1] * factor**i for i in range(1, k - len(positions) + 1)]
    return (*positions, *beyond)


def expected_speedup(point: Operating, base_seconds: float, k: int) -> float | None:
    """Return the speedup at any `k`, predicted from one K > 0 and from T(B, 0).

    T(B, k) is the straight line through T(B, 0) and T(B, K), carried on beyond K.
    """
    full = point.num_speculative_tokens
    positions = extended_positions(point.position_acceptance, k)
    if full <= 0 or len(positions) < k:
        return None
    length = 1.0 + point.coverage * sum(positions)
    return length * base_seconds / (base_seconds + (point.step_seconds - base_seconds) * k / full)
