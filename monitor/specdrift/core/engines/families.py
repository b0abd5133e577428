"""Samples grouped for reading: by engine, by name, as sums and as histograms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from specdrift.core.engines.model import Histogram, Sample

Pages = Mapping[str, Sequence[Sample]]
Pair = tuple[str, str]
DEFAULT_ENGINE: Final = "0"


def group_by_pair(
    samples: Iterable[Sample], model: str, engine: str
) -> dict[Pair, dict[str, list[Sample]]]:
    """Return samples by (model name, engine), then by metric name, in the order of the page.

    A series without an engine label belongs to engine "0", one without a model to "".
    """
    pages: dict[Pair, dict[str, list[Sample]]] = {}
    for sample in samples:
        labels = sample.labels
        pair = (labels.get(model, ""), labels.get(engine, DEFAULT_ENGINE))
        pages.setdefault(pair, {}).setdefault(sample.name, []).append(sample)
    return pages


def usable(value: float) -> bool:
    """Tell whether a counter or a gauge of ours can have this value."""
    return math.isfinite(value) and value >= 0.0


def total(samples: Sequence[Sample]) -> tuple[float | None, bool]:
    """Return the sum over a metric's series, and whether it is there but damaged.

    No series is (None, False). One value that cannot be (NaN, infinite, negative) makes the
    whole sum unknown: (None, True).
    """
    if not samples:
        return None, False
    if not all(usable(sample.value) for sample in samples):
        return None, True
    return math.fsum(sample.value for sample in samples), False


def read_histogram(families: Pages, name: str) -> tuple[Histogram | None, bool]:
    """Return the histogram of that name summed over its series, and whether it is damaged."""
    buckets = families.get(name + "_bucket", ())
    sums = families.get(name + "_sum", ())
    counts = families.get(name + "_count", ())
    if not (buckets or sums or counts):
        return None, False
    return build_histogram(buckets, sums, counts)


def build_histogram(
    buckets: Sequence[Sample], sums: Sequence[Sample], counts: Sequence[Sample]
) -> tuple[Histogram | None, bool]:
    """Return one histogram out of its three families, and whether it is damaged.

    Series that differ in further labels are added up bound by bound, when each has the same
    bounds. Damaged are: a value that cannot be, a bound that is no number, no infinite bucket,
    counts that fall, and a count that is not the infinite bucket's.
    """
    merged: dict[float, float] = {}
    series: dict[float, int] = {}
    for sample in buckets:
        try:
            bound = float(sample.labels["le"])
        except (KeyError, ValueError):
            return None, True
        if not usable(sample.value) or math.isnan(bound):
            return None, True
        merged[bound] = merged.get(bound, 0.0) + sample.value
        series[bound] = series.get(bound, 0) + 1
    all_seconds, sum_broken = total(sums)
    count, count_broken = total(counts)
    if sum_broken or count_broken or all_seconds is None or len(set(series.values())) != 1:
        return None, True
    bounds = tuple(sorted(merged))
    values = tuple(merged[bound] for bound in bounds)
    if bounds[-1] != math.inf or any(later < earlier for earlier, later in pairwise(values)):
        return None, True
    if count is not None and count != values[-1]:
        return None, True
    return Histogram(bounds, values, all_seconds, values[-1]), False
