"""The timeline: acceptance per class, and over it everything that happened. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import words
from answers import Alarm, Decision, Point
from theme import (
    Figure,
    Frame,
    Name,
    ground,
    layout_shapes,
    name_lines,
    notes,
    of_class,
    say_if_blank,
)

LANES = 3
LANE_TOP = 0.84
# Room that a name takes beside its mark, as a share of the chart's width per character.
CHARACTER = 0.0072
HARD_SPACE = "\u00a0"


@dataclass(frozen=True, slots=True)
class Event:
    """Something to mark on the timeline."""

    time: float
    name: str
    sentence: str
    symbol: str
    grave: bool = False
    since: float | None = None


DECISION_MARKS = {
    "act": "triangle-right",
    "verified": "star",
    "undo": "x",
    "probe": "diamond-open",
    "fall_back": "triangle-left",
    "recovered": "star-diamond",
    "recommend": "circle-open",
    "report": "square-open",
}


def events(
    alarms: Sequence[Alarm], decisions: Sequence[Decision], at: Callable[[float | None], str]
) -> tuple[Event, ...]:
    """Return what the timeline marks, oldest first; holding still is not marked."""
    found = [
        Event(
            time=a.time,
            name=f"{'back' if a.recovery else 'alarm'}: {a.traffic_class}",
            sentence=words.alarm(a, at),
            symbol="circle" if a.recovery else "triangle-down",
            grave=not a.recovery,
            since=None if a.recovery else a.change_point,
        )
        for a in alarms
    ]
    for d in decisions:
        if d.kind not in DECISION_MARKS:
            continue
        name = words.KINDS[d.kind]
        if d.kind in ("act", "recommend", "fall_back") and d.rung:
            joint = ": " if d.kind == "recommend" else " to "
            name = f"{name}{joint}{d.rung}"
        elif d.kind == "report" and d.cause:
            name = f"reported: {d.cause.replace('_', ' ')}"
        found.append(Event(d.time, name, d.sentence, DECISION_MARKS[d.kind]))
    return tuple(sorted(found, key=lambda e: e.time))


def acceptance(
    frame: Frame,
    classes: Sequence[str],
    marked: Sequence[Event],
    break_even: float | None,
    *,
    blended: bool = True,
) -> Figure:
    """Return acceptance per class against its baseline, with everything that happened."""
    figure = ground(frame, 400)
    look = frame.look
    figure["layout"]["yaxis"].update(domain=[0, LANE_TOP - 0.02], range=[0, 1], dtick=0.2)
    labels: list[Name] = []
    for i, name in enumerate(classes):
        colour = look.colour(i)
        figure["data"].append(
            frame.line(
                of_class(name, "baseline"),
                states=None,
                line={"color": colour, "width": 1.2, "dash": "dash"},
                hoverinfo="skip",
            )
        )
        value = of_class(name, "acceptance")
        figure["data"].append(
            frame.line(
                value,
                name=name,
                line={"color": colour, "width": 2.2},
                hovertemplate=f"{name} %{{y:.2f}}<extra></extra>",
            )
        )
        labels += frame.name(value, f"<b>{name}</b>", colour)
    if blended and len(classes) > 1:
        value = _acceptance
        figure["data"].append(
            frame.line(
                value,
                name="blended",
                line={"color": look.quiet, "width": 1.6, "dash": "dot"},
                hovertemplate="blended %{y:.2f}<extra></extra>",
            )
        )
        labels += frame.name(value, "blended", look.quiet)
    if break_even is not None and 0 <= break_even <= 1:
        layout_shapes(figure).append(
            {
                "type": "line",
                "xref": "x domain",
                "x0": 0,
                "x1": 1,
                "y0": break_even,
                "y1": break_even,
                "line": {"color": look.bad, "width": 1.4, "dash": "longdash"},
            }
        )
        labels.append(Name(break_even, "break-even", look.bad))
    name_lines(figure, labels, least=0.065)
    if not labels:
        say_if_blank(figure, _acceptance, frame, "no acceptance in this stretch of time")
    _name_rungs(figure, frame)
    _mark(figure, frame, marked)
    return figure


def _name_rungs(figure: Figure, frame: Frame) -> None:
    width = max(frame.end - frame.start, 1.0)
    for span in frame.spans:
        if span.rung == "as-found" or (span.end - span.start) / width < 0.04:
            continue
        notes(figure).append(
            {
                "x": frame.look.x(max(span.start, frame.start)),
                "xanchor": "left",
                "xshift": 5,
                "yref": "y domain",
                "y": 1,
                "yanchor": "top",
                "text": f"rung: <b>{span.rung}</b>",
                "showarrow": False,
                "font": {"size": 13, "color": frame.look.text},
            }
        )


def _mark(figure: Figure, frame: Frame, marked: Sequence[Event]) -> None:
    """Put events into lanes above the chart, each with a line down through it."""
    look, width = frame.look, max(frame.end - frame.start, 1.0)
    seen = [e for e in marked if frame.start <= e.time <= frame.end]
    free = [float("-inf")] * LANES
    xs, ys, symbols, colours, names_, hover, sides, label_xs = [], [], [], [], [], [], [], []
    for event in seen:
        at = (event.time - frame.start) / width
        room = CHARACTER * len(event.name) + 0.02
        left = at + room > 1.0
        first = max(event.since or event.time, frame.start)
        tail = (event.time - first) / width
        begin, end = (at - tail - room, at + 0.01) if left else (at - tail - 0.006, at + room)
        lane = next((i for i in range(LANES) if free[i] <= begin), None)
        text = event.name
        if lane is None:
            lane = min(range(LANES), key=lambda i: free[i])
            text = ""
        free[lane] = max(free[lane], end)
        xs.append(look.x(event.time))
        ys.append(LANES - lane)
        symbols.append(event.symbol)
        colours.append(look.bad if event.grave else look.text)
        names_.append(text)
        sides.append("middle left" if left else "middle right")
        label_xs.append(look.x(first) if left else xs[-1])
        hover.append("<br>".join(textwrap.wrap(event.sentence, 76)) or event.name)
        _line(figure, xs[-1], colours[-1], "solid" if event.grave else "dot")
        if event.since is not None and event.since >= frame.start:
            _line(figure, look.x(event.since), look.bad, "dot")
            layout_shapes(figure).append(
                {
                    "type": "line",
                    "x0": look.x(event.since),
                    "x1": xs[-1],
                    "yref": "y2",
                    "y0": ys[-1],
                    "y1": ys[-1],
                    "line": {"color": look.bad, "width": 3},
                }
            )
    figure["layout"]["yaxis2"] = {
        "domain": [LANE_TOP, 1],
        "range": [0.4, LANES + 0.6],
        "visible": False,
        "fixedrange": True,
    }
    figure["data"].append(
        {
            "type": "scatter",
            "mode": "text",
            "x": label_xs,
            "y": ys,
            "yaxis": "y2",
            "text": [f"{HARD_SPACE * 3}{name}{HARD_SPACE * 3}" if name else "" for name in names_],
            "textposition": sides,
            "textfont": {"size": 13, "color": colours},
            "hoverinfo": "skip",
            "cliponaxis": False,
        }
    )
    figure["data"].append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": xs,
            "y": ys,
            "yaxis": "y2",
            "marker": {"symbol": symbols, "color": colours, "size": 10},
            "hovertext": hover,
            "hovertemplate": "%{x|%H:%M:%S} %{hovertext}<extra></extra>",
            "cliponaxis": False,
        }
    )


def _line(figure: Figure, x: float, colour: str, dash: str) -> None:
    layout_shapes(figure).append(
        {
            "type": "line",
            "x0": x,
            "x1": x,
            "yref": "y domain",
            "y0": 0,
            "y1": 1,
            "line": {"color": colour, "width": 1, "dash": dash},
            "opacity": 0.75,
        }
    )


def _acceptance(point: Point) -> float | None:
    return point.acceptance
