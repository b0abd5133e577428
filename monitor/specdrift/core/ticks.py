"""What one tick of the loop leaves behind: the records that a store keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision with the inputs it was made from, both JSON text."""

    time: float
    decision: str
    inputs: str


@dataclass(frozen=True, slots=True)
class TickRecord:
    """Everything one tick leaves behind; written in one transaction or not at all.

    Attributes:
        documents: Named JSON documents to replace ("pipeline", "loop", "snapshots", ...).
        point: One JSON object for the time series, or None.
        alarms: JSON objects, one per new alarm.
        decisions: New decisions.
        keep_points_since: Points older than this unix time are dropped.
    """

    time: float
    documents: Mapping[str, str]
    point: str | None = None
    alarms: tuple[str, ...] = ()
    decisions: tuple[StoredDecision, ...] = ()
    keep_points_since: float = 0.0
