"""What `specdrift watch` prints on a page or in a stream: lines of text out of views. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from specdrift.core.summary import (
    EngineState,
    EngineSummary,
    SpecSummary,
    Verdict,
    WindowSummary,
    break_even,
)
from specdrift.durations import format_duration

if TYPE_CHECKING:
    from specdrift.adapters.prometheus import WorkloadRow
    from specdrift.cli.watch_targets import TargetView

SENTENCES: Final = {
    "ok": "ok",
    "speculation_off": "speculation is off (the page has no speculative counters)",
    "no_traffic": "no traffic",
    "no_drafts": "no drafts (tokens were generated without speculation)",
    "restarted": "the engine restarted (counts are since then)",
    "missing": "its speculative counters cannot be used",
    "first": "waiting for a second scrape",
    "down": "target down",
    "not_an_exposition": "not a metrics page",
    "not_supported": "not supported",
    "error": "cannot be read",
    "not_enough_data": "not enough data in the window yet",
}
WORKLOAD_COLUMNS: Final = (
    "namespace",
    "job",
    "model",
    "class",
    "acceptance",
    "drafts/s",
    "tokens/s",
    "running",
    "ms/token",
    "age",
    "state",
)
_SPARKS: Final = "▁▂▃▄▅▆▇█"


# --- plain lines -----------------------------------------------------------------------------


def block(view: TargetView, reference: float | None = None) -> list[str]:
    """Return one address as a block of lines, for `--once`."""
    lines: list[str] = []
    for engine in shown_engines(view):
        lines.append(f"{view.url}  {heading(view, engine)}")
        lines.extend(f"  {name:<16}{text}" for name, text in facts(engine, reference))
        lines.extend(f"  {line}" for line in class_lines(engine))
    return lines or [f"{view.url}  {SENTENCES[view.state]}: {view.error}"]


def line(view: TargetView, at: str) -> list[str]:
    """Return one line per engine and class of an address, for streams that are no terminal."""
    if view.error is not None:
        return [f"{at} {view.url} {SENTENCES[view.state]}: {view.error}"]
    lines: list[str] = []
    for engine in shown_engines(view):
        head = f"{at} {view.url} {name_of(view, engine)}"
        parts = [] if engine.state is EngineState.OK else [SENTENCES[engine.state]]
        window = engine.window
        if window and engine.state is not EngineState.NO_TRAFFIC:
            parts += _spec_parts(window.spec)
            parts += [speed_text(window), load_text(window)]
        lines.append(f"{head}: {', '.join(part for part in parts if part)}")
        for each in engine.classes:
            text = ", ".join(_spec_parts(each.window)) if each.window else "no traffic"
            lines.append(f"{head} class {each.traffic_class}: {text}")
    return lines


def shown_engines(view: TargetView) -> Sequence[EngineSummary]:
    """Return what to show of an address: each series, and their sum first if that is one."""
    if view.total is None or len(view.engines) == 1:
        return view.engines
    return (view.total, *view.engines)


def name_of(view: TargetView, engine: EngineSummary) -> str:
    """Return the model's name, with the engine's number where a page has several."""
    name = engine.model_name or "(no model name)"
    if len(view.engines) == 1:
        return name
    return f"{name} engine {engine.engine}" if engine.engine else f"{name} all engines"


def heading(view: TargetView, engine: EngineSummary) -> str:
    """Return engine, version, model and state in one line."""
    version = view.version or "(version unknown)"
    state = SENTENCES[engine.state]
    if engine.damaged and engine.state is EngineState.MISSING:
        state += f": {', '.join(engine.damaged)}"
    return f"{engine.engine_kind} {version}  {name_of(view, engine)}  {state}"


def facts(engine: EngineSummary, reference: float | None) -> list[tuple[str, str]]:
    """Return what is known about an engine as (name, text) pairs."""
    since, window = engine.since_start, engine.window
    recent = window.spec if window else SpecSummary()
    rows: list[tuple[str, str]] = []
    if since is not None:
        counts = f"({number(since.accepted_tokens)} of {number(since.draft_tokens)} draft tokens)"
        span = (
            f"in the last {format_duration(round(window.seconds, 1))}"
            if window
            else "in no window yet"
        )
        k = engine.num_speculative_tokens
        setting = f" (K = {k}, method {engine.method or 'unknown'})" if k else ""
        rows += [
            (
                "acceptance",
                f"{ratio(recent.acceptance) if recent.draft_tokens else 'no drafts'} {span}, "
                f"{ratio(since.acceptance)} since start {counts}",
            ),
            (
                "mean length",
                f"{length(recent.mean_acceptance_length)} tokens per draft {span}, "
                f"{length(since.mean_acceptance_length)} since start{setting}",
            ),
        ]
        positions = recent.per_position or since.per_position
        if positions:
            rows.append(("per position", " ".join(ratio(share) for share in positions)))
    if window is not None:
        rows.append(("speed", speed_text(window)))
        rows.append(("load", load_text(window)))
    rows.append(("break-even", verdict_text(break_even(engine, reference))))
    if engine.missing:
        rows.append(("missing", ", ".join(engine.missing)))
    return rows


def class_lines(engine: EngineSummary) -> list[str]:
    """Return the classes as a table; nothing without a tap."""
    if not engine.classes:
        return []
    rows = [("class", "acceptance", "since start", "mean length", "drafts")]
    for each in engine.classes:
        recent = each.window or SpecSummary()
        rows.append(
            (
                each.traffic_class,
                ratio(recent.acceptance) if each.window else "no traffic",
                ratio(each.since_start.acceptance),
                length(recent.mean_acceptance_length),
                number(recent.drafts),
            )
        )
    return table(rows)


def workload_lines(rows: Sequence[WorkloadRow]) -> list[str]:
    """Return the rows of a Prometheus as a table, in their order."""
    return table([WORKLOAD_COLUMNS, *(workload_cells(row) for row in rows)])


def workload_cells(row: WorkloadRow) -> tuple[str, ...]:
    """Return one row of a Prometheus as the cells of a table."""
    return (
        row.namespace or "-",
        row.job or "-",
        row.model_name or "-",
        row.traffic_class or "(all)",
        ratio(row.acceptance),
        number(row.drafts_per_second),
        number(row.tokens_per_second),
        number(row.running),
        milliseconds(row.time_per_output_token_seconds),
        format_duration(row.age_seconds) if row.age_seconds is not None else "-",
        SENTENCES.get(row.state, row.state),
    )


def table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return rows with their columns aligned."""
    cells = list(rows)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


# --- numbers ---------------------------------------------------------------------------------


def ratio(value: float | None) -> str:
    """Return a ratio with three places; "-" for unknown."""
    return "-" if value is None else f"{value:.3f}"


def length(value: float | None) -> str:
    """Return a mean length with two places."""
    return "-" if value is None else f"{value:.2f}"


def number(value: float | None) -> str:
    """Return a count or a rate with a few digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def milliseconds(value: float | None) -> str:
    """Return seconds as milliseconds without a unit."""
    return "-" if value is None else f"{value * 1000:.3g}"


def speed_text(window: WindowSummary) -> str:
    """Return tokens per second, step time and time per output token, as far as known."""
    parts = [f"{number(window.tokens_per_second)} tokens/s"]
    if window.tokens_per_second is None:
        parts = ["tokens/s unknown"]
    if window.step_seconds is not None:
        parts.append(f"step {milliseconds(window.step_seconds)} ms")
    if window.time_per_output_token_seconds is not None:
        parts.append(f"{milliseconds(window.time_per_output_token_seconds)} ms per output token")
    return ", ".join(parts)


def load_text(window: WindowSummary) -> str:
    """Return running and waiting requests."""
    return f"{number(window.running)} running, {number(window.waiting)} waiting"


def verdict_text(verdict: Verdict) -> str:
    """Return the break-even verdict as a sentence."""
    times = f" ({verdict.speedup:.2f} times as fast)" if verdict.speedup is not None else ""
    return f"{verdict.verdict.replace('_', ' ')}{times}: {verdict.why}"


def _spec_parts(spec: SpecSummary) -> list[str]:
    if spec.acceptance is None:
        return []
    parts = [f"acceptance {ratio(spec.acceptance)}"]
    parts.append(f"mean length {length(spec.mean_acceptance_length)}")
    if spec.per_position:
        parts.append("positions " + " ".join(ratio(share) for share in spec.per_position))
    return parts


def bar(share: float, width: int = 20) -> str:
    """Return a bar of that share."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return "█" * filled + "░" * (width - filled)


def sparkline(values: Sequence[float | None]) -> str:
    """Return ratios as a line of bars from 0 to 1; a gap where there is none."""
    top = len(_SPARKS) - 1
    return "".join(
        " " if value is None else _SPARKS[round(max(0.0, min(1.0, value)) * top)]
        for value in values
    )
