"""The exposition reader's speed beside prometheus_client's, in one run, on a real page."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from specdrift.adapters.exposition import parse_exposition
from specdrift.core.engines import registry
from tests.support.pages import fixture


def best_seconds(call: Callable[[], object], times: int) -> float:
    fastest = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def test_at_least_ten_times_faster() -> None:
    page = fixture("ngram-after-traffic")
    theirs = best_seconds(lambda: list(text_string_to_metric_families(page)), 15)
    ours = best_seconds(lambda: parse_exposition(page, registry.wanted), 100)
    print(f"prometheus_client {theirs * 1e3:.2f} ms, specdrift {ours * 1e3:.2f} ms", end=", ")
    print(f"{theirs / ours:.1f} times")
    assert theirs / ours >= 10
