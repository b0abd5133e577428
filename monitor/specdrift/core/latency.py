"""Latency histograms: batch buckets, quantiles, means, differences and sums.

Quantiles follow Prometheus: linear inside a bucket, and an answer in the infinite bucket is the
last finite bound, marked as a lower limit. Histograms with different bounds are never combined;
the result carries a named state instead.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from specdrift.conventions import BATCH_BUCKET_BOUNDS
from specdrift.core.engines.model import Histogram


class HistogramState(StrEnum):
    """Whether two histograms could be combined, and why not."""

    OK = "ok"
    BOUNDS_CHANGED = "bounds_changed"
    RESTARTED = "restarted"
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True)
class HistogramResult:
    """A histogram, or None and the state that says why there is none."""

    state: HistogramState
    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile read from a histogram.

    Attributes:
        seconds: The estimate.
        lower, upper: Bounds of the bucket it lies in; it is interpolation between them.
        beyond_last_bound: True when it lies in the infinite bucket: `seconds` is the last finite
            bound then, and the truth is larger.
    """

    seconds: float
    lower: float
    upper: float
    beyond_last_bound: bool = False


def batch_bucket_names(bounds: tuple[int, ...] = BATCH_BUCKET_BOUNDS) -> tuple[str, ...]:
    """Return the names of the batch buckets with these inclusive upper bounds.

    >>> batch_bucket_names((1, 8, 32, 128))
    ('1', '2-8', '9-32', '33-128', '129+')
    """
    names: list[str] = []
    lowest = 1
    for bound in bounds:
        names.append(f"{lowest}" if bound == lowest else f"{lowest}-{bound}")
        lowest = bound + 1
    return (*names, f"{lowest}+")


def batch_bucket(running: float, bounds: tuple[int, ...] = BATCH_BUCKET_BOUNDS) -> str:
    """Return the name of the bucket that this many running requests fall into.

    A mean (8.4 running) is rounded to a whole number first; 0 belongs to the lowest bucket.

    Raises:
        ValueError: `running` is negative or no number.
    """
    if math.isnan(running) or running < 0:
        raise ValueError(f"{running} running requests cannot be")
    return batch_bucket_names(bounds)[bisect_left(bounds, math.floor(running + 0.5))]


def mean(histogram: Histogram | None) -> float | None:
    """Return the mean of the observations, or None without any."""
    if histogram is None or histogram.count <= 0:
        return None
    return histogram.sum / histogram.count


def histogram_quantile(quantile: float, histogram: Histogram | None) -> Quantile | None:
    """Return a quantile as Prometheus does, or None without observations.

    Raises:
        ValueError: `quantile` is not in 0..1.
    """
    if not 0.0 <= quantile <= 1.0:
        raise ValueError(f"a quantile is between 0 and 1, not {quantile}")
    if histogram is None or histogram.counts[-1] <= 0:
        return None
    total = histogram.counts[-1]
    rank = quantile * total
    index = next(i for i, count in enumerate(histogram.counts) if count >= rank)
    bounds = histogram.bounds
    if index == len(bounds) - 1:
        if index == 0:
            return None
        last = bounds[index - 1]
        return Quantile(last, last, math.inf, beyond_last_bound=True)
    upper = bounds[index]
    if index == 0 and upper <= 0:
        return Quantile(upper, -math.inf, upper)
    lower = bounds[index - 1] if index else 0.0
    before = histogram.counts[index - 1] if index else 0.0
    inside = histogram.counts[index] - before
    share = (rank - before) / inside if inside > 0 else 1.0
    return Quantile(lower + (upper - lower) * share, lower, upper)


def subtract(before: Histogram | None, after: Histogram | None) -> HistogramResult:
    """Return what was observed between two readings of one histogram."""
    if before is None or after is None:
        return HistogramResult(HistogramState.NO_DATA)
    if before.bounds != after.bounds:
        return HistogramResult(HistogramState.BOUNDS_CHANGED)
    counts = tuple(b - a for a, b in zip(before.counts, after.counts, strict=True))
    seconds = after.sum - before.sum
    falls = any(count < 0 for count in counts) or any(b < a for a, b in pairwise(counts))
    if falls or seconds < 0:
        return HistogramResult(HistogramState.RESTARTED)
    difference = Histogram(after.bounds, counts, seconds, after.count - before.count)
    return HistogramResult(HistogramState.OK, difference)


def merge(histograms: Iterable[Histogram | None]) -> HistogramResult:
    """Return the sum of histograms with equal bounds; absent ones do not count."""
    total: Histogram | None = None
    for histogram in histograms:
        if histogram is None:
            continue
        if total is None:
            total = histogram
        elif total.bounds != histogram.bounds:
            return HistogramResult(HistogramState.BOUNDS_CHANGED)
        else:
            total = Histogram(
                total.bounds,
                tuple(a + b for a, b in zip(total.counts, histogram.counts, strict=True)),
                total.sum + histogram.sum,
                total.count + histogram.count,
            )
    if total is None:
        return HistogramResult(HistogramState.NO_DATA)
    return HistogramResult(HistogramState.OK, total)
