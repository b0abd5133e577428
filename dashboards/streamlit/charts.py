"""The figures of the page, as Plotly's JSON. Pure: points and events in, a figure out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import words
from answers import Alarm, Decision, Point
from specdrift import conventions as names
from theme import MARKS, Figure, Frame, Value, ground, layout_shapes, level, name_lines, notes

LANES = 3
LANE_TOP = 0.84
# Room that a name takes beside its mark, as a share of the chart's width per character.
CHARACTER = 0.0072


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
    figure = ground(frame, 400, right=92)
    look = frame.look
    figure["layout"]["yaxis"].update(domain=[0, LANE_TOP - 0.02], range=[0, 1], dtick=0.2)
    labels = []
    for i, name in enumerate(classes):
        colour = look.colour(i)
        figure["data"].append(
            frame.line(
                _of_class(name, "baseline"),
                line={"color": colour, "width": 1.2, "dash": "dash"},
                hoverinfo="skip",
            )
        )
        value = _of_class(name, "acceptance")
        figure["data"].append(
            frame.line(
                value,
                name=name,
                line={"color": colour, "width": 2.2},
                hovertemplate=f"{name} %{{y:.2f}}<extra></extra>",
            )
        )
        if (last := frame.last(value)) is not None:
            labels.append((last[1], f"<b>{name}</b>", colour))
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
        if (last := frame.last(value)) is not None:
            labels.append((last[1], "blended", look.quiet))
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
        labels.append((break_even, "break-even", look.bad))
    name_lines(figure, labels, least=0.065)
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
                "y": 0.01,
                "yanchor": "bottom",
                "text": f"rung: <b>{span.rung}</b>",
                "showarrow": False,
                "font": {"size": 12, "color": frame.look.text},
            }
        )


def _mark(figure: Figure, frame: Frame, marked: Sequence[Event]) -> None:
    """Put events into lanes above the chart, each with a line down through it."""
    look, width = frame.look, max(frame.end - frame.start, 1.0)
    seen = [e for e in marked if frame.start <= e.time <= frame.end]
    free = [float("-inf")] * LANES
    xs, ys, symbols, colours, names_, hover, sides = [], [], [], [], [], [], []
    for event in seen:
        at = (event.time - frame.start) / width
        room = CHARACTER * len(event.name) + 0.02
        left = at + room > 1.0
        begin, end = (at - room, at + 0.01) if left else (at - 0.006, at + room)
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
            "mode": "markers+text",
            "x": xs,
            "y": ys,
            "yaxis": "y2",
            "text": names_,
            "textposition": sides,
            "textfont": {"size": 12, "color": colours},
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


def cusum(frame: Frame, classes: Sequence[str]) -> Figure:
    """Return the statistic over its decision interval per class; 1 raises the alarm."""
    figure = ground(frame, 210)
    labels = []
    top = 1.25
    for i, name in enumerate(classes):
        value = _of_class(name, "cusum")
        known = [v for v in map(value, frame.points) if v is not None]
        top = max(top, *known) if known else top
        figure["data"].append(
            frame.line(
                value,
                line={"color": frame.look.colour(i), "width": 2},
                hovertemplate=f"{name} %{{y:.2f}} of the threshold<extra></extra>",
            )
        )
        if (last := frame.last(value)) is not None:
            labels.append((min(last[1], 3.0), name, frame.look.colour(i)))
    # A standing drift goes on climbing; what matters is where it crossed.
    figure["layout"]["yaxis"].update(range=[0, min(top * 1.05, 3.0)])
    level(figure, 1.0, "alarm", frame.look.bad)
    name_lines(figure, [(y, n, c) for y, n, c in labels if abs(y - 1) > 0.15], least=0.3)
    return figure


def speedup(frame: Frame) -> Figure:
    """Return the speed against plain decoding at equal load; below 1 speculation loses."""
    figure = ground(frame, 210)
    figure["data"].append(
        frame.line(
            lambda p: p.speedup,
            line={"color": frame.look.colour(0), "width": 2},
            hovertemplate="%{y:.2f}x plain decoding<extra></extra>",
        )
    )
    known = [p.speedup for p in frame.points if p.speedup is not None]
    figure["layout"]["yaxis"].update(
        range=[min(0.5, *known, 1.0) * 0.95, max(1.5, *known) * 1.05] if known else [0.5, 1.5],
        ticksuffix="x",
    )
    level(figure, 1.0, "plain", frame.look.quiet)
    return figure


def tpot(frame: Frame) -> Figure:
    """Return the p99 time per output token, marked by batch bucket."""
    return _latency(frame, lambda p: p.tpot_p99, "p99")


def ttft(frame: Frame) -> Figure:
    """Return the p99 time to the first token, marked by batch bucket."""
    return _latency(frame, lambda p: p.ttft_p99, "p99")


def _latency(frame: Frame, value: Value, name: str) -> Figure:
    figure = ground(frame, 210)
    look = frame.look

    def ms(p: Point) -> float | None:
        seconds = value(p)
        return None if seconds is None else seconds * 1e3

    figure["data"].append(
        frame.line(ms, line={"color": look.quiet, "width": 1}, hoverinfo="skip", showlegend=False)
    )
    for i, bucket in enumerate(names.BATCH_BUCKETS):
        inside = [p for p in frame.points if p.bucket == bucket and value(p) is not None]
        if not inside:
            continue
        figure["data"].append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [look.x(p.time) for p in inside],
                "y": [ms(p) for p in inside],
                "name": f"{bucket} running",
                "marker": {"color": look.colour(i), "symbol": MARKS[i], "size": 5},
                "hovertemplate": f"{name} %{{y:.1f}} ms, {bucket} running<extra></extra>",
            }
        )
    figure["layout"]["yaxis"]["ticksuffix"] = " ms"
    figure["layout"]["showlegend"] = True
    figure["layout"]["legend"] = {
        "x": 1.0,
        "y": 1,
        "xanchor": "left",
        "font": {"size": 11},
        "bgcolor": "rgba(0,0,0,0)",
    }
    figure["layout"]["margin"]["r"] = 110
    return figure


def cost(frame: Frame) -> Figure:
    """Return dollars per million output tokens."""
    figure = ground(frame, 210)
    figure["data"].append(
        frame.line(
            lambda p: p.cost,
            line={"color": frame.look.colour(2), "width": 2},
            hovertemplate="$%{y:.2f} per 1M tokens<extra></extra>",
        )
    )
    figure["layout"]["yaxis"].update(tickprefix="$", tickformat=".2f")
    return figure


def load(frame: Frame) -> Figure:
    """Return requests running and waiting."""
    figure = ground(frame, 210)
    labels = []
    lines: tuple[tuple[str, Value, str], ...] = (
        ("running", lambda p: p.running, "solid"),
        ("waiting", lambda p: p.waiting, "dot"),
    )
    for i, (name, value, dash) in enumerate(lines):
        colour = frame.look.colour(i)
        figure["data"].append(
            frame.line(
                value,
                line={"color": colour, "width": 2, "dash": dash},
                hovertemplate=f"%{{y:.0f}} {name}<extra></extra>",
            )
        )
        if (last := frame.last(value)) is not None:
            labels.append((last[1], name, colour))
    known = [v for p in frame.points for v in (p.running, p.waiting) if v is not None]
    name_lines(figure, labels, least=max([1.0, *known]) * 0.13)
    return figure


def _acceptance(point: Point) -> float | None:
    return point.acceptance


def _of_class(name: str, what: str) -> Value:
    def value(point: Point) -> float | None:
        found = point.classes.get(name)
        if found is None:
            return None
        number: float | None = getattr(found, what)
        return number

    return value
