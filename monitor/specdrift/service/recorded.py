"""Recorded pages -> windows, and step times without speculation learned from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from specdrift.adapters.exposition import parse_exposition
from specdrift.adapters.trace import TraceScrape
from specdrift.core import benefit
from specdrift.core.benefit import Bucket
from specdrift.core.economics import StepTimes
from specdrift.core.engines.registry import read_page, wanted
from specdrift.core.windows import Snapshot, Window, window_between
from specdrift.errors import TargetError, UsageError


def snapshots_of(scrape: TraceScrape) -> list[Snapshot]:
    """Return one snapshot per engine on a recorded page, or one that says why there is none."""
    if scrape.exposition is None:
        return [Snapshot("trace", scrape.t, None, scrape.error or "no page")]
    try:
        found = read_page(parse_exposition(scrape.exposition, wanted, where="trace"))
    except TargetError as error:
        return [Snapshot("trace", scrape.t, None, str(error))]
    if len(found) == 1:
        return [Snapshot("trace", scrape.t, found[0])]
    return [Snapshot(f"trace#{c.model_name}/{c.engine}", scrape.t, c) for c in found]


def windows_of(scrapes: Iterable[TraceScrape]) -> Iterator[Window]:
    """Yield the windows of a recording, one per engine and scrape."""
    good: dict[str, Snapshot] = {}
    for scrape in scrapes:
        for snapshot in snapshots_of(scrape):
            yield window_between(good.get(snapshot.instance), snapshot)
            if snapshot.counters is not None:
                good[snapshot.instance] = snapshot


def learn_reference(scrapes: Iterable[TraceScrape], where: str) -> StepTimes:
    """Return T(B, 0) as recorded in the windows with speculation off.

    Raises:
        UsageError: The recording has none with a speed.
    """
    times = benefit.reference_times(windows_of(scrapes))
    if not times.bins:
        raise UsageError(
            "--reference has no traffic with speculation off",
            where=where,
            why="step times without speculation cannot be learned from it",
            hint="a recording of the same server, started without speculative config",
        )
    return times


def measured_buckets(
    scrapes: Iterable[TraceScrape], reference: StepTimes, where: str
) -> Sequence[Bucket]:
    """Return step times with and without speculation, and break-even, by batch bucket.

    Raises:
        UsageError: The recording has no traffic with speculation on.
    """
    found = benefit.buckets(list(windows_of(scrapes)), reference)
    if not found:
        raise UsageError(
            "--trace has no traffic with speculation on",
            where=where,
            why="there is nothing to compare with the reference",
        )
    return found
