"""Exceptions that specdrift raises.

    SpecdriftError                      everything below; carries what, where, why and what to try
    ├── UsageError                      the user asked for something impossible          (exit 2)
    │   ├── PolicyError                 a policy file or resource is not valid
    │   ├── ScenarioError               a simulator scenario is not valid
    │   └── SpecConfigError             a speculative config is not valid for the engine version
    ├── TargetError                     an engine's page could not be read
    │   ├── TargetUnreachable           nothing answered, or too late
    │   ├── NotAnExposition             something answered that is no Prometheus exposition
    │   └── EngineNotSupported          an engine whose counters cannot be judged (vLLM V0)
    ├── TraceError                      a recorded trace could not be read
    ├── StoreError                      the store could not be opened, read or written
    ├── ActuationError                  an action could not be carried out
    └── CalibrationError                a threshold could not be solved for

`str(error)` is one sentence for a person. Causes are chained (`raise ... from`), bodies of
responses are clipped (`clip`), because they may hold secrets or megabytes.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DRIFT = 3
EXIT_UNKNOWN = 4

CLIP_CHARACTERS = 160


def clip(text: str, limit: int = CLIP_CHARACTERS) -> str:
    """Return `text` on one line and at most `limit` characters long, marked where it was cut."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


class SpecdriftError(Exception):
    """A failure with a sentence a person can act on.

    Args:
        what: What failed, e.g. "cannot read the metrics page".
        where: The address, file or field it happened at.
        why: The reason, in a few words.
        hint: What to try next.
    """

    exit_code = EXIT_FAILED

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += f" ({self.where})"
        if self.why:
            text += f": {clip(self.why)}"
        if self.hint:
            text += f". Try: {self.hint}"
        return text


class UsageError(SpecdriftError):
    """The request cannot be carried out as asked."""

    exit_code = EXIT_USAGE


class PolicyError(UsageError):
    """A policy file or resource is not valid; names the field."""


class ScenarioError(UsageError):
    """A simulator scenario is not valid; names the field."""


class SpecConfigError(UsageError):
    """A speculative config is malformed, contradictory or rejected by the engine version."""


class TargetError(SpecdriftError):
    """An engine's metrics page could not be used."""


class TargetUnreachable(TargetError):
    """Nothing answered at the address, or not in time."""


class NotAnExposition(TargetError):
    """The address answered with something that is not a Prometheus exposition."""


class EngineNotSupported(TargetError):
    """The page is an engine's, but its counters cannot be used; the sentence says why."""


class TraceError(SpecdriftError):
    """A recorded trace could not be read."""


class StoreError(SpecdriftError):
    """The store could not be opened, read or written."""


class ActuationError(SpecdriftError):
    """An action on an engine could not be carried out."""


class CalibrationError(SpecdriftError):
    """A detector threshold could not be solved for."""
