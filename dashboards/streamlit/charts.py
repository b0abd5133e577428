"""The smaller figures of the page, as Plotly's JSON. Pure: points in, a figure out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from answers import Alarm, Point
from segments import GOOD
from specdrift import conventions as names
from theme import (
    MARKS,
    Figure,
    Frame,
    Name,
    Value,
    ground,
    level,
    name_lines,
    of_class,
    say_if_blank,
)


def cusum(frame: Frame, classes: Sequence[str], alarms: Sequence[Alarm]) -> Figure:
    """Return the statistic over its decision interval per class; 1 raises the alarm.

    The statistic starts anew when it alarms, so that the crossing itself is marked, not drawn.
    """
    figure = ground(frame, 210)
    labels: list[Name] = []
    top = 1.25
    for i, name in enumerate(classes):
        value = of_class(name, "cusum")
        known = [v for v in map(value, frame.points) if v is not None]
        top = max(top, *known) if known else top
        figure["data"].append(
            frame.line(
                value,
                states=("ok",),
                line={"color": frame.look.colour(i), "width": 2},
                hovertemplate=f"{name} %{{y:.2f}} of the threshold<extra></extra>",
            )
        )
        labels += frame.name(value, name, frame.look.colour(i), ("ok",))
    # A standing drift goes on climbing; what matters is where it crossed.
    figure["layout"]["yaxis"].update(range=[0, min(top * 1.05, 3.0)])
    raised = [
        a
        for a in alarms
        if a.traffic_class in classes and not a.recovery and frame.start <= a.time <= frame.end
    ]
    figure["data"].append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": [frame.look.x(a.time) for a in raised],
            "y": [1.0] * len(raised),
            "hovertext": [f"alarm: class {a.traffic_class}" for a in raised],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {"symbol": "triangle-down", "size": 12, "color": frame.look.bad},
        }
    )
    level(figure, 1.0, "alarm", frame.look.bad)
    named = [replace(n, y=min(n.y, 3.0)) for n in labels if n.x is None and abs(n.y - 1) > 0.15]
    name_lines(figure, named, least=0.3)
    if not labels:
        say_if_blank(figure, _no_value, frame, "known once the baseline is learned")
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
    say_if_blank(
        figure, lambda p: p.speedup, frame, "not known yet: needs a time with speculation off"
    )
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
        inside = [
            p
            for p in frame.points
            if p.bucket == bucket and p.state in GOOD and value(p) is not None
        ]
        if not inside:
            continue
        figure["data"].append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [look.x(p.time) for p in inside],
                "y": [ms(p) for p in inside],
                "name": bucket,
                "marker": {"color": look.buckets[i], "symbol": MARKS[i], "size": 5},
                "hovertemplate": f"{name} %{{y:.1f}} ms, {bucket} running<extra></extra>",
            }
        )
    say_if_blank(figure, value, frame, "no request has finished yet")
    figure["layout"]["yaxis"]["ticksuffix"] = " ms"
    figure["layout"]["showlegend"] = True
    figure["layout"]["legend"] = {
        "x": 1.0,
        "y": 1,
        "xanchor": "left",
        "font": {"size": 12},
        "title": {"text": "running", "font": {"size": 12}},
        "bgcolor": "rgba(0,0,0,0)",
    }
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
    # The first requests after a start cost a multiple: let them leave the chart, not flatten it.
    known = [p.cost for p in frame.points if p.cost is not None]
    top = min(max(known), 3 * statistics.median(known)) * 1.1 if known else 1.0
    figure["layout"]["yaxis"].update(tickprefix="$", tickformat=".2f", range=[0, top])
    return figure


def load(frame: Frame) -> Figure:
    """Return requests running and waiting."""
    figure = ground(frame, 210)
    labels: list[Name] = []
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
        labels += frame.name(value, name, colour)
    known = [v for p in frame.points for v in (p.running, p.waiting) if v is not None]
    name_lines(figure, labels, least=max([1.0, *known]) * 0.13)
    say_if_blank(figure, lambda p: p.running, frame, "no traffic")
    return figure


def _no_value(_: Point) -> None:
    return None
