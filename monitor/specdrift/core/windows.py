"""Two snapshots of one engine -> one window of counts, or a named state that says why not.

"No traffic", "speculation off", "restarted", "down" and "missing" are states, never zeros:
everything downstream asks for the state before it reads a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from specdrift import conventions as names
from specdrift.core.engines.model import (
    ClassCounters,
    ClassSteps,
    EngineCounters,
    Histogram,
    SpecCounters,
)
from specdrift.core.latency import merge, subtract


class WindowState(StrEnum):
    """What a window is good for."""

    OK = "ok"
    NO_TRAFFIC = "no_traffic"
    SPECULATION_OFF = "speculation_off"
    MISSING = "missing"
    FIRST = "first"
    RESTARTED = "restarted"
    DOWN = "down"
    CLOCK_WENT_BACK = "clock_went_back"
    K_CHANGED = "k_changed"


@dataclass(frozen=True, slots=True)
class ClassWindow:
    """Speculative counts of one class at one K in one window (tokens and drafts, not rates)."""

    traffic_class: str
    num_speculative_tokens: int | None
    spec: SpecCounters

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens per draft token, or None without a draft token."""
        tokens = self.spec.draft_tokens
        return self.spec.accepted_tokens / tokens if tokens > 0 else None


@dataclass(frozen=True, slots=True)
class Window:
    """What one engine did between two scrapes.

    Times are unix seconds, `*_seconds` seconds, all other quantities counts. `spec` is None
    when the engine exports no speculative series (speculation is off).
    """

    instance: str
    start: float
    end: float
    state: WindowState
    model_name: str = ""
    method: str | None = None
    num_speculative_tokens: int | None = None
    spec: SpecCounters | None = None
    by_class: tuple[ClassWindow, ...] = ()
    class_output_tokens: Mapping[str, float] = field(default_factory=dict)
    class_step_seconds: Mapping[str, float] = field(default_factory=dict)
    class_request_steps: Mapping[str, float] = field(default_factory=dict)
    generation_tokens: float | None = None
    first_tokens: float | None = None
    requests_finished: float | None = None
    steps: float | None = None
    request_steps: float | None = None
    request_step_seconds: float | None = None
    running: float | None = None
    waiting: float | None = None
    time_per_output_token: Histogram | None = None
    time_to_first_token: Histogram | None = None
    queue_time: Histogram | None = None

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end - self.start

    @property
    def mean_running(self) -> float | None:
        """Mean number of requests in a decode step; exact where the engine counts steps.

        vLLM: inter_token_latency's count is one per request and step, iteration_tokens_total's
        one per step. The running gauge is an instantaneous sample and only the fallback.
        """
        if self.request_steps and self.steps:
            return self.request_steps / self.steps
        return self.running


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One scrape of one instance: counters, or None and the reason it failed."""

    instance: str
    time: float
    counters: EngineCounters | None
    error: str | None = None


def window_between(before: Snapshot | None, after: Snapshot) -> Window:
    """Return the window from `before` to `after`, or one whose state says why there is none.

    A missed scrape telescopes: `before` is the last *good* snapshot. After a restart the counts
    are those since the process started (the counters themselves), and the state is RESTARTED.
    """
    counters = after.counters
    start = before.time if before is not None else after.time
    if counters is None:
        return Window(after.instance, start, after.time, WindowState.DOWN)
    if before is None or before.counters is None:
        return _described(Window(after.instance, start, after.time, WindowState.FIRST), counters)
    if after.time <= before.time:
        return _described(
            Window(after.instance, after.time, after.time, WindowState.CLOCK_WENT_BACK), counters
        )
    restarted = _restarted(before.counters, counters)
    base = EMPTY if restarted else before.counters
    window = _described(_difference(after.instance, start, after.time, base, counters), counters)
    return replace(window, state=_state(before.counters, counters, window, restarted))


EMPTY = EngineCounters(engine_kind="", model_name="", engine="")


def _described(window: Window, counters: EngineCounters) -> Window:
    return replace(
        window,
        model_name=counters.model_name,
        method=counters.method,
        num_speculative_tokens=maximum_k(counters),
        running=counters.running,
        waiting=counters.waiting,
    )


def maximum_k(counters: EngineCounters) -> int | None:
    """Return the largest K the page shows (number of positions), or None."""
    if counters.spec is not None and counters.spec.accepted_per_position:
        return len(counters.spec.accepted_per_position)
    known = [
        c.num_speculative_tokens for c in counters.by_class if c.num_speculative_tokens is not None
    ]
    return max(known, default=None)


def _restarted(before: EngineCounters, after: EngineCounters) -> bool:
    starts = (before.process_start, after.process_start)
    # The start time is derived from boot time on some systems and may jitter by a little.
    if starts[0] is not None and starts[1] is not None and abs(starts[1] - starts[0]) > 1.0:
        return True
    pairs = [
        (before.generation_tokens, after.generation_tokens),
        (before.request_steps, after.request_steps),
    ]
    if before.spec is not None and after.spec is not None:
        pairs.append((before.spec.drafts, after.spec.drafts))
        pairs.append((before.spec.draft_tokens, after.spec.draft_tokens))
    return any(was is not None and now is not None and now < was for was, now in pairs)


def _state(
    before: EngineCounters, after: EngineCounters, window: Window, restarted: bool
) -> WindowState:
    if restarted:
        return WindowState.RESTARTED
    if after.spec is None:
        damaged = any("spec_decode" in name for name in after.damaged)
        return WindowState.MISSING if damaged else WindowState.SPECULATION_OFF
    if maximum_k(before) != maximum_k(after) or before.method != after.method:
        return WindowState.K_CHANGED
    spec = window.spec
    if spec is None:
        return WindowState.FIRST
    if not _consistent(spec):
        return WindowState.MISSING
    return WindowState.OK if spec.draft_tokens > 0 else WindowState.NO_TRAFFIC


def _consistent(spec: SpecCounters) -> bool:
    counts = (spec.drafts, spec.draft_tokens, spec.accepted_tokens, *spec.accepted_per_position)
    return min(counts) >= 0 and spec.accepted_tokens <= spec.draft_tokens


def _difference(
    instance: str, start: float, end: float, before: EngineCounters, after: EngineCounters
) -> Window:
    return Window(
        instance,
        start,
        end,
        WindowState.OK,
        spec=_spec_difference(before, after),
        by_class=_class_differences(before.by_class, after.by_class),
        class_output_tokens={
            name: max(0.0, value - before.class_output_tokens.get(name, 0.0))
            for name, value in after.class_output_tokens.items()
        },
        generation_tokens=_minus(after.generation_tokens, before.generation_tokens, before),
        first_tokens=_minus(after.first_tokens, before.first_tokens, before),
        requests_finished=_minus(after.requests_finished, before.requests_finished, before),
        steps=_minus(after.steps, before.steps, before),
        request_steps=_minus(after.request_steps, before.request_steps, before),
        request_step_seconds=_minus(
            after.request_step_seconds, before.request_step_seconds, before
        ),
        time_per_output_token=_latency(before, after, names.TAP_TPOT, "time_per_output_token"),
        time_to_first_token=_latency(before, after, names.TAP_TTFT, "time_to_first_token"),
        queue_time=_latency(before, after, names.TAP_QUEUE, "queue_time"),
        class_step_seconds=_by_class(before, after, lambda c: c.request_step_seconds),
        class_request_steps=_by_class(before, after, lambda c: c.request_steps),
    )


def _minus(after: float | None, before: float | None, base: EngineCounters) -> float | None:
    if after is None:
        return None
    if before is None:
        return after if base is EMPTY else None
    # One family alone began anew (multiprocess mode): its count in this window is unknown.
    return after - before if after >= before else None


def _spec_difference(before: EngineCounters, after: EngineCounters) -> SpecCounters | None:
    if after.spec is None:
        return None
    if before.spec is None:
        return after.spec if before is EMPTY else None
    return subtract_spec(before.spec, after.spec)


def subtract_spec(before: SpecCounters, after: SpecCounters) -> SpecCounters:
    """Return after - before; positions that only one side has are left out."""
    return SpecCounters(
        after.drafts - before.drafts,
        after.draft_tokens - before.draft_tokens,
        after.accepted_tokens - before.accepted_tokens,
        tuple(
            b - a
            for a, b in zip(before.accepted_per_position, after.accepted_per_position, strict=False)
        ),
    )


def add_spec(left: SpecCounters, right: SpecCounters) -> SpecCounters:
    """Return the sum of two sets of counts; positions beyond the shorter one count as zero."""
    size = max(len(left.accepted_per_position), len(right.accepted_per_position))
    one = left.accepted_per_position + (0.0,) * (size - len(left.accepted_per_position))
    two = right.accepted_per_position + (0.0,) * (size - len(right.accepted_per_position))
    return SpecCounters(
        left.drafts + right.drafts,
        left.draft_tokens + right.draft_tokens,
        left.accepted_tokens + right.accepted_tokens,
        tuple(a + b for a, b in zip(one, two, strict=True)),
    )


NO_SPEC = SpecCounters(0.0, 0.0, 0.0)


def _class_differences(
    before: tuple[ClassCounters, ...], after: tuple[ClassCounters, ...]
) -> tuple[ClassWindow, ...]:
    known = {(c.traffic_class, c.num_speculative_tokens): c.spec for c in before}
    windows = []
    for counters in after:
        key = (counters.traffic_class, counters.num_speculative_tokens)
        base = known.get(key, NO_SPEC)
        size = len(counters.spec.accepted_per_position)
        padded = replace(
            base,
            accepted_per_position=(base.accepted_per_position + (0.0,) * size)[:size],
        )
        windows.append(ClassWindow(*key, subtract_spec(padded, counters.spec)))
    return tuple(w for w in windows if w.spec.draft_tokens > 0 and _consistent(w.spec))


def _latency(
    before: EngineCounters, after: EngineCounters, tap_metric: str, own: str
) -> Histogram | None:
    """Return one latency's window: the tap's (finer buckets) where it is there, else the engine's.

    None when the engine just started, the bounds changed, or the page does not carry it.
    """
    sides = []
    for counters in (before, after):
        tapped = [c.histogram for c in counters.class_latency if c.metric == tap_metric]
        sides.append(merge(tapped).histogram if tapped else None)
    if sides[1] is not None and sides[0] is not None:
        return subtract(sides[0], sides[1]).histogram
    return subtract(getattr(before, own), getattr(after, own)).histogram


def _by_class(
    before: EngineCounters, after: EngineCounters, count: Callable[[ClassSteps], float]
) -> dict[str, float]:
    """Return request-steps or their seconds by class: what each class occupied the engine for."""
    totals: dict[str, float] = {}
    for sign, counters in ((1.0, after), (-1.0, before)):
        for c in counters.class_steps:
            totals[c.traffic_class] = totals.get(c.traffic_class, 0.0) + sign * count(c)
    return {name: max(0.0, value) for name, value in totals.items()}
