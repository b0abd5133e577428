"""Requests and labels of recorded traffic, in one shape whatever the recorder wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """Speculative counts of one request.

    Attributes:
        drafts: Verify steps with at least one proposed token.
        draft_tokens: Tokens proposed.
        accepted_tokens: Tokens accepted, bonus token excluded.
        num_speculative_tokens: K, or None where the record does not say.
        per_step_accepted: Accepted tokens of each step, in order; empty where not recorded.
        per_step_drafted: Proposed tokens of each step, in order; empty where not recorded.
        estimated: True when told from the size of streamed chunks, not by the engine.
    """

    drafts: float
    draft_tokens: float
    accepted_tokens: float
    num_speculative_tokens: int | None = None
    per_step_accepted: tuple[int, ...] = ()
    per_step_drafted: tuple[int, ...] = ()
    estimated: bool = False

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens per draft token; None for a request without a draft token."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens > 0 else None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One recorded request.

    Attributes:
        start: Unix time of sending.
        end: Unix time of the last byte.
        chunks: Streamed chunks: seconds since start, and tokens (None where not recorded).
        spec: What the engine said about this request's drafts; None where it did not.
        status: HTTP status; None where not recorded.
    """

    start: float
    end: float
    traffic_class: str
    ttft_seconds: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    chunks: tuple[tuple[float, int | None], ...] = ()
    spec: RequestSpec | None = None
    status: int | None = None

    @property
    def time_per_output_token_seconds(self) -> float | None:
        """Seconds per token after the first; None where it cannot be told."""
        if self.ttft_seconds is None or self.output_tokens is None or self.output_tokens < 2:
            return None
        return (self.end - self.start - self.ttft_seconds) / (self.output_tokens - 1)

    def spec_from_chunks(self, num_speculative_tokens: int) -> RequestSpec | None:
        """Estimate the counts from streamed chunks, for engines that do not report them.

        After the first chunk (the prompt's), a chunk of n tokens is one step with n - 1 accepted:
        exact as long as chunks do not merge and each step drafts K.
        """
        sizes = [tokens for _, tokens in self.chunks]
        if len(sizes) < 2 or any(tokens is None for tokens in sizes):
            return None
        accepted = tuple((tokens or 1) - 1 for tokens in sizes[1:])
        if max(accepted) > num_speculative_tokens:
            return None
        drafted = (num_speculative_tokens,) * len(accepted)
        return RequestSpec(
            drafts=len(accepted),
            draft_tokens=sum(drafted),
            accepted_tokens=sum(accepted),
            num_speculative_tokens=num_speculative_tokens,
            per_step_accepted=accepted,
            per_step_drafted=drafted,
            estimated=True,
        )


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a recording with one kind of traffic; `name` may be empty."""

    start: float
    end: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class ClassShare:
    """Share of one class among the arrivals: points (unix time, share), linear in between."""

    traffic_class: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was done to the traffic or the engine, and when.

    Attributes:
        kind: "class_share", "phase" or "restart".
        start: Unix time it began.
        end: Unix time it was complete (a ramp's end, the engine's return).
        what: A few words.
    """

    kind: str
    start: float
    end: float
    what: str


@dataclass(frozen=True, slots=True)
class Labels:
    """What was done when in a recording. It scores a detector and is never its input.

    Attributes:
        t0: Unix time the recording's phases count from.
        restarts: Stretches without an engine: (unix time it went, unix time it was back).
    """

    t0: float
    phases: tuple[Phase, ...] = ()
    class_share: tuple[ClassShare, ...] = ()
    restarts: tuple[tuple[float, float], ...] = ()
    trace: str = ""
    other: dict[str, object] = field(default_factory=dict)

    def changes(self) -> tuple[Change, ...]:
        """Return everything that was changed, in order of time."""
        found = [Change("restart", gone, back, "engine restarted") for gone, back in self.restarts]
        for share in self.class_share:
            for (start, before), (end, after) in pairwise(share.points):
                if before != after:
                    what = f"share of {share.traffic_class} from {before:g} to {after:g}"
                    found.append(Change("class_share", start, end, what))
        for first, second in pairwise(self.phases):
            if first.name != second.name:
                what = f"{first.name} to {second.name}"
                found.append(Change("phase", first.end, second.start, what))
        return tuple(sorted(found, key=lambda change: change.start))
