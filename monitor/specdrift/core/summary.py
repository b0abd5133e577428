"""What one engine does, in the numbers people ask for: pure, for terminals, scripts and pages.

A number that cannot be known is None and a state says why; nothing is NaN and nothing absent is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce

from specdrift.core.engines.model import ClassCounters, EngineCounters, SpecCounters
from specdrift.core.latency import mean, merge
from specdrift.core.windows import Window, WindowState, add_spec


class EngineState(StrEnum):
    """How an engine is, in one word."""

    OK = "ok"
    SPECULATION_OFF = "speculation_off"
    NO_TRAFFIC = "no_traffic"
    NO_DRAFTS = "no_drafts"
    RESTARTED = "restarted"
    MISSING = "missing"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class SpecSummary:
    """Speculative counts and their ratios (0 to 1)."""

    acceptance: float | None = None
    mean_acceptance_length: float | None = None
    per_position: tuple[float, ...] = ()
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """What happened between two scrapes.

    Attributes:
        step_seconds: Mean time of an engine step, as a running request sees it.
        time_per_output_token_seconds: Mean seconds per token after a request's first.
        time_per_output_token_source: "finished_requests" where the engine's per-token histogram
            had observations, "steps" where it is step time over tokens, else None.
    """

    seconds: float
    spec: SpecSummary
    generation_tokens: float | None = None
    tokens_per_second: float | None = None
    step_seconds: float | None = None
    time_per_output_token_seconds: float | None = None
    time_per_output_token_source: str | None = None
    running: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """One traffic class; `window` is None when the class drafted nothing in it."""

    traffic_class: str
    since_start: SpecSummary
    window: SpecSummary | None
    output_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class EngineSummary:
    """One engine, or several engines of one model added up (`engine` is "" then).

    Attributes:
        since_start: None when speculation is off or cannot be read.
        window: None when there is no window (first scrape).
        missing: Metric names without a usable value on the page.
    """

    model_name: str
    engine: str
    engine_kind: str
    state: EngineState
    since_start: SpecSummary | None
    generation_tokens: float | None
    window: WindowSummary | None
    classes: tuple[ClassSummary, ...] = ()
    num_speculative_tokens: int | None = None
    method: str | None = None
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = field(default=())


def summarise_spec(spec: SpecCounters | None) -> SpecSummary:
    """Return counts with their ratios; a ratio without a denominator is None."""
    if spec is None:
        return SpecSummary()
    drafts, tokens = spec.drafts, spec.draft_tokens
    usable = drafts > 0 and tokens > 0
    positions = spec.accepted_per_position
    return SpecSummary(
        acceptance=spec.accepted_tokens / tokens if usable else None,
        mean_acceptance_length=1.0 + spec.accepted_tokens / drafts if usable else None,
        per_position=tuple(count / drafts for count in positions) if usable else (),
        drafts=drafts,
        draft_tokens=tokens,
        accepted_tokens=spec.accepted_tokens,
    )


def summarise(
    engines: Sequence[tuple[EngineCounters, Window]], *, engine: str = ""
) -> EngineSummary:
    """Return one summary of one or several engines of a model: counts add up, then ratios.

    Args:
        engines: Counters of the latest scrape, each with its window; not empty.
        engine: The engine label to show.
    """
    counters = [each for each, _ in engines]
    windows = [window for _, window in engines]
    first = counters[0]
    # Part of the engines without readable counters would give a sum that is no sum.
    known = [each.spec for each in counters if each.spec is not None]
    total = reduce(add_spec, known) if len(known) == len(counters) else None
    return EngineSummary(
        model_name=first.model_name,
        engine=engine,
        engine_kind=first.engine_kind,
        state=_state(windows),
        since_start=summarise_spec(total) if total else None,
        generation_tokens=_sum(each.generation_tokens for each in counters),
        window=_window(windows),
        classes=_classes(counters, windows),
        num_speculative_tokens=windows[0].num_speculative_tokens,
        method=first.method,
        missing=tuple(dict.fromkeys(name for each in counters for name in each.missing)),
        damaged=tuple(dict.fromkeys(name for each in counters for name in each.damaged)),
    )


def _state(windows: Sequence[Window]) -> EngineState:
    """Return the state of the whole; what keeps the sum from being one comes first."""
    states = {window.state for window in windows}
    if WindowState.MISSING in states:
        return EngineState.MISSING
    if states == {WindowState.SPECULATION_OFF}:
        return EngineState.SPECULATION_OFF
    if WindowState.SPECULATION_OFF in states:
        return EngineState.MISSING
    if WindowState.RESTARTED in states:
        return EngineState.RESTARTED
    if states & {WindowState.FIRST, WindowState.DOWN, WindowState.CLOCK_WENT_BACK}:
        return EngineState.FIRST
    if any(window.spec is not None and window.spec.draft_tokens > 0 for window in windows):
        return EngineState.OK
    if any((window.generation_tokens or 0.0) > 0 for window in windows):
        return EngineState.NO_DRAFTS
    return EngineState.NO_TRAFFIC


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, or None when one of the values is not known."""
    known: list[float] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return math.fsum(known) if known else None


def _window(windows: Sequence[Window]) -> WindowSummary | None:
    seconds = max(window.seconds for window in windows)
    if seconds <= 0:
        return None

    def total(pick: Callable[[Window], float | None]) -> float | None:
        return _sum(pick(window) for window in windows)

    specs = [window.spec for window in windows if window.spec is not None]
    tokens = total(lambda window: window.generation_tokens)
    request_steps = total(lambda window: window.request_steps)
    step_time = total(lambda window: window.request_step_seconds)
    restarted = any(window.state is WindowState.RESTARTED for window in windows)
    per_token = mean(merge(window.time_per_output_token for window in windows).histogram)
    source = "finished_requests" if per_token is not None else None
    first_tokens = total(lambda window: window.first_tokens)
    if per_token is None and step_time and tokens is not None and first_tokens is not None:
        later_tokens = tokens - first_tokens
        if later_tokens > 0:
            per_token, source = step_time / later_tokens, "steps"
    return WindowSummary(
        seconds=seconds,
        spec=summarise_spec(reduce(add_spec, specs) if len(specs) == len(windows) else None),
        generation_tokens=tokens,
        # The counts of a window with a restart in it began at an unknown time.
        tokens_per_second=tokens / seconds if tokens is not None and not restarted else None,
        step_seconds=step_time / request_steps if step_time and request_steps else None,
        time_per_output_token_seconds=per_token,
        time_per_output_token_source=source,
        running=total(lambda window: window.running),
        waiting=total(lambda window: window.waiting),
    )


def _classes(
    counters: Sequence[EngineCounters], windows: Sequence[Window]
) -> tuple[ClassSummary, ...]:
    """Return the classes, over all K and engines, by name."""
    since: dict[str, list[ClassCounters]] = {}
    for each in counters:
        for entry in each.by_class:
            since.setdefault(entry.traffic_class, []).append(entry)
    recent: dict[str, list[SpecCounters]] = {}
    for window in windows:
        for part in window.by_class:
            recent.setdefault(part.traffic_class, []).append(part.spec)
    return tuple(
        ClassSummary(
            traffic_class=name,
            since_start=summarise_spec(reduce(add_spec, [entry.spec for entry in since[name]])),
            window=summarise_spec(reduce(add_spec, recent[name])) if name in recent else None,
            output_tokens=_sum(
                window.class_output_tokens.get(name, 0.0)
                for window in windows
                if window.class_output_tokens
            ),
        )
        for name in sorted(since)
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether speculation pays: "pays", "loses", "even", "unknown" or "not_applicable".

    Attributes:
        speedup: Time per token without speculation over time per token now.
        why: One sentence: what it rests on, or what would make it known.
    """

    verdict: str
    why: str
    speedup: float | None = None


EVEN_BAND = 0.02


def break_even(summary: EngineSummary, reference_seconds: float | None) -> Verdict:
    """Return whether speculation pays, against a time per output token without it.

    Args:
        summary: The engine.
        reference_seconds: Its time per output token without speculation at the same load, if
            somebody measured that.
    """
    if summary.state is EngineState.SPECULATION_OFF:
        return Verdict("not_applicable", "speculation is off")
    if reference_seconds is None:
        return Verdict(
            "unknown",
            "acceptance alone does not tell; give --reference-tpot, the time per output token "
            "this engine needs without speculation at this load",
        )
    now = summary.window.time_per_output_token_seconds if summary.window else None
    if now is None or now <= 0:
        return Verdict("unknown", "no tokens were generated in this window")
    speedup = reference_seconds / now
    verdict = "pays" if speedup > 1.0 else "loses"
    if abs(speedup - 1.0) <= EVEN_BAND:
        verdict = "even"
    why = f"{now * 1000:.3g} ms per token against {reference_seconds * 1000:.3g} ms without"
    return Verdict(verdict, why, speedup)
