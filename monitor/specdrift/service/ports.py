"""What the loop needs from the world: a clock, pages, an actuator, a store, somebody to tell.

Adapters satisfy these by shape; tests pass their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from specdrift.core.policy import Rollout
from specdrift.core.ticks import StoredDecision, TickRecord
from specdrift.core.windows import Snapshot

Json = Mapping[str, object]


class Clock(Protocol):
    """Unix time in seconds."""

    def now(self) -> float: ...


class Source(Protocol):
    """Where snapshots come from: one per instance and call, failures as snapshots with an error."""

    def collect(self, now: float) -> Sequence[Snapshot]: ...

    def engine_version(self) -> str | None:
        """Return what the engine says of its version, None when it does not."""
        ...


class Actuator(Protocol):
    """Whatever can give the engine another speculative config.

    Level-triggered: `ensure` with the config already in force changes nothing and answers
    "ready" once the engine serves, so asking again after a crash is safe.
    """

    def as_found(self) -> Json | None:
        """Return the speculative config the workload came with; None: speculation off."""
        ...

    def live(self) -> Json | None:
        """Return the speculative config in force; None: speculation off."""
        ...

    def ensure(self, settings: Json | None, plan: str) -> Rollout:
        """Make `settings` the config in force; returns how far that is."""
        ...

    def running(self) -> bool:
        """Tell whether the workload runs at all, whatever its config."""
        ...

    def status(self) -> Rollout:
        """Return how the workload is, asking for nothing."""
        ...


class Store(Protocol):
    """Durable memory of the loop."""

    def document(self, name: str) -> str | None: ...

    def commit(self, record: TickRecord) -> None: ...

    def put_document(self, name: str, text: str) -> None: ...

    def points(self, since: float, limit: int) -> list[str]:
        """Return points newer than `since`, oldest first, at most `limit` (the newest ones)."""
        ...

    def alarms(self, limit: int) -> list[tuple[int, str]]:
        """Return (id, JSON) newest first."""
        ...

    def decisions(self, limit: int) -> list[tuple[int, StoredDecision]]:
        """Return (id, decision) newest first."""
        ...

    def decision(self, number: int) -> StoredDecision | None: ...

    def decision_kinds(self) -> list[tuple[str, str | None, int]]:
        """Return (kind, rung, how many) over all stored decisions."""
        ...

    def close(self) -> None: ...


class Narrator(Protocol):
    """Who is told: one sentence per decision or alarm, the same everywhere."""

    def tell(self, time: float, kind: str, sentence: str) -> None: ...


__all__ = [
    "Actuator",
    "Clock",
    "Json",
    "Narrator",
    "Source",
    "Store",
    "StoredDecision",
    "TickRecord",
]
