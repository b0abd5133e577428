"""The terminal page of `specdrift watch`, drawn with rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specdrift.cli import watch_view as text
from specdrift.core.summary import EngineSummary
from specdrift.durations import format_duration

if TYPE_CHECKING:
    from specdrift.adapters.prometheus import WorkloadRow
    from specdrift.cli.watch_targets import TargetView

# Colour only repeats what the words say.
_STYLES = {"ok": "green", "speculation_off": "cyan", "no_traffic": "dim", "first": "dim"}


def page(views: Sequence[TargetView], reference: float | None) -> RenderableType:
    """Return everything there is to see about some engines."""
    panels: list[RenderableType] = []
    for view in views:
        engines = text.shown_engines(view)
        if not engines:
            last = ""
            if view.age_seconds is not None:
                last = f"\nlast page {format_duration(round(view.age_seconds))} ago"
            body = Text(f"{text.SENTENCES[view.state]}: {view.error}{last}", style="red")
            panels.append(Panel(body, title=Text(view.url), title_align="left"))
        panels.extend(_panel(view, engine, reference) for engine in engines)
    return Group(*panels)


def _panel(view: TargetView, engine: EngineSummary, reference: float | None) -> Panel:
    style = _STYLES.get(engine.state.value, "yellow")
    parts: list[RenderableType] = [Text(text.heading(view, engine), style=style)]
    grid = Table.grid(padding=(0, 2))
    for name, value in text.facts(engine, reference):
        if name != "per position":
            grid.add_row(Text(name, style="bold"), Text(value))
            continue
        for index, share in enumerate(_positions(engine)):
            label = "per position" if index == 0 else ""
            grid.add_row(Text(label, style="bold"), Text(f"{text.bar(share)} {share:.3f}"))
    if view.total is not None and engine in (view.total, view.engines[0]):
        grid.add_row(Text("last windows", style="bold"), Text(text.sparkline(view.history)))
    if view.age_seconds is not None:
        age = format_duration(round(view.age_seconds))
        took = format_duration(view.scrape_seconds or 0.0)
        grid.add_row(Text("data age", style="bold"), Text(f"{age}, page read in {took}"))
    parts.append(grid)
    if classes := text.class_lines(engine):
        parts.append(Text("\n".join(classes)))
    return Panel(Group(*parts), title=Text(view.url), title_align="left", border_style=style)


def _positions(engine: EngineSummary) -> tuple[float, ...]:
    if engine.window and engine.window.spec.per_position:
        return engine.window.spec.per_position
    return engine.since_start.per_position if engine.since_start else ()


def workloads(rows: Sequence[WorkloadRow], title: str) -> RenderableType:
    """Return the rows of a Prometheus, worst first as they come."""
    if not rows:
        return Text(f"{title}: no inference servers found")
    table = Table(title=Text(title), title_justify="left")
    for name in text.WORKLOAD_COLUMNS:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(cell) for cell in text.workload_cells(row)))
    return table
