"""Latency histograms: buckets, quantiles, differences and sums."""

from __future__ import annotations

import math

import pytest

from specdrift.conventions import BATCH_BUCKETS
from specdrift.core.engines.model import Histogram
from specdrift.core.latency import (
    HistogramState,
    batch_bucket,
    batch_bucket_names,
    histogram_quantile,
    mean,
    merge,
    subtract,
)

H = Histogram((0.01, 0.1, 1.0, math.inf), (10, 30, 40, 50), 25.0, 50)
EMPTY = Histogram((0.01, math.inf), (0, 0), 0.0, 0)


def test_names_are_those_of_the_contract() -> None:
    assert batch_bucket_names() == BATCH_BUCKETS
    assert batch_bucket_names((4, 5)) == ("1-4", "5", "6+")


@pytest.mark.parametrize(
    ("running", "name"),
    [
        (0, "1"),
        (1, "1"),
        (1.4, "1"),
        (1.5, "2-8"),
        (8, "2-8"),
        (8.4, "2-8"),
        (9, "9-32"),
        (33, "33-128"),
        (129, "129+"),
        (1e9, "129+"),
    ],
)
def test_batch_bucket(running: float, name: str) -> None:
    assert batch_bucket(running) == name


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_batch_bucket_refuses_what_cannot_be(bad: float) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        batch_bucket(bad)


@pytest.mark.parametrize(
    ("q", "seconds"),
    [(0.0, 0.0), (0.1, 0.005), (0.2, 0.01), (0.4, 0.055), (0.6, 0.1), (0.7, 0.55), (0.8, 1.0)],
)
def test_quantiles_as_prometheus(q: float, seconds: float) -> None:
    got = histogram_quantile(q, H)
    assert got is not None
    assert got.seconds == pytest.approx(seconds)
    assert got.lower <= got.seconds <= got.upper
    assert not got.beyond_last_bound


def test_the_infinite_bucket_gives_the_last_bound_marked() -> None:
    got = histogram_quantile(0.99, H)
    assert got is not None
    assert (got.seconds, got.beyond_last_bound, got.upper) == (1.0, True, math.inf)
    assert histogram_quantile(0.5, Histogram((math.inf,), (3,), 1.0, 3)) is None


def test_no_data_is_none_not_zero() -> None:
    assert histogram_quantile(0.5, None) is None
    assert histogram_quantile(0.5, EMPTY) is None
    assert mean(None) is None
    assert mean(EMPTY) is None
    assert mean(H) == 0.5
    with pytest.raises(ValueError, match="between 0 and 1"):
        histogram_quantile(1.5, H)


def test_subtract() -> None:
    later = Histogram(H.bounds, (11, 35, 45, 56), 30.0, 56)
    got = subtract(H, later)
    assert got.histogram == Histogram(H.bounds, (1, 5, 5, 6), 5.0, 6)
    assert subtract(later, H).state is HistogramState.RESTARTED
    assert subtract(EMPTY, H).state is HistogramState.BOUNDS_CHANGED
    assert subtract(None, H).state is HistogramState.NO_DATA
    assert subtract(H, None).histogram is None


def test_merge() -> None:
    got = merge([H, None, H])
    assert got.histogram == Histogram(H.bounds, (20, 60, 80, 100), 50.0, 100)
    assert merge([H, EMPTY]).state is HistogramState.BOUNDS_CHANGED
    assert merge([None]).state is HistogramState.NO_DATA
    assert merge([]).histogram is None
