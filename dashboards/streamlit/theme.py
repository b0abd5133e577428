"""Colours and the ground of every chart, for the light and the dark theme.

The palette is Okabe and Ito's, which people with any colour vision tell apart, in a darker cut for
light ground. Every line also carries its name, and every mark its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from answers import Point
from segments import GOOD, Span, rung_spans

Figure = dict[str, Any]
Item = dict[str, Any]
Value = Callable[[Point], float | None]

FONT = {"size": 13, "family": "Source Sans, Source Sans Pro, sans-serif"}
RIGHT = 98
GAP_FACTOR = 3.5
MARKS = ("circle", "square", "diamond", "triangle-up", "cross")


@dataclass(frozen=True, slots=True)
class Look:
    """What a figure needs to know of its surroundings."""

    dark: bool = False
    zone: tzinfo = UTC

    @property
    def series(self) -> tuple[str, ...]:
        """Colours of classes and buckets."""
        if self.dark:
            return ("#56B4E9", "#E69F00", "#2BC49A", "#E79CC8", "#F0E442")
        return ("#0072B2", "#C65102", "#00805F", "#9B4F86", "#7A6A00")

    @property
    def buckets(self) -> tuple[str, ...]:
        """Colours of batch buckets, unlike those of classes."""
        if self.dark:
            return ("#F6C667", "#F08CA8", "#C79BEA", "#9DB2FF", "#FFFFFF")
        return ("#946300", "#C2436B", "#7B3FA0", "#3F3F9E", "#1B1B1B")

    @property
    def bad(self) -> str:
        """Alarms and limits."""
        return "#FF7B54" if self.dark else "#B83A00"

    @property
    def quiet(self) -> str:
        """Reference lines and what stays in the background."""
        return "#9AA0AA" if self.dark else "#6B7280"

    @property
    def text(self) -> str:
        """Text on the chart's ground."""
        return "#E6E6E6" if self.dark else "#262730"

    @property
    def grid(self) -> str:
        """Grid lines."""
        return "rgba(250,250,250,0.10)" if self.dark else "rgba(38,39,48,0.09)"

    @property
    def shade(self) -> str:
        """The stretch of a rung other than the one found."""
        return "rgba(160,165,180,0.17)" if self.dark else "rgba(100,105,130,0.11)"

    def colour(self, index: int) -> str:
        """Return the colour of the i-th series."""
        return self.series[index % len(self.series)]

    def x(self, unix: float) -> float:
        """Return a time on the axis: milliseconds of the viewer's wall clock."""
        offset = datetime.fromtimestamp(unix, self.zone).utcoffset()
        return (unix + (offset.total_seconds() if offset else 0.0)) * 1000.0


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a line at height `y`; `x` None is the chart's right edge."""

    y: float
    text: str
    colour: str
    x: float | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """The time that a set of charts shares, and the points in it."""

    points: tuple[Point, ...]
    start: float
    end: float
    interval: float
    look: Look

    @property
    def spans(self) -> tuple[Span, ...]:
        """Return the rungs in force."""
        return rung_spans(self.points)

    def line(self, value: Value, states: tuple[str, ...] | None = GOOD, **style: object) -> Item:
        """Return a line whose gaps stay gaps: unknown values, missing windows, other states.

        Args:
            states: Engine states in which the value says something new; None: all.
        """
        return {**self.values(value, states), "type": "scatter", "mode": "lines", **style}

    def values(self, value: Value, states: tuple[str, ...] | None) -> Item:
        """Return the x and y of a series, with a hole wherever it says nothing."""
        xs: list[float] = []
        ys: list[float | None] = []
        last: float | None = None
        for point in self.points:
            if last is not None and point.time - last > GAP_FACTOR * self.interval:
                xs.append(self.look.x(last + self.interval))
                ys.append(None)
            xs.append(self.look.x(point.time))
            ys.append(value(point) if states is None or point.state in states else None)
            last = point.time
        return {"x": xs, "y": ys, "connectgaps": False}

    def name(
        self, value: Value, name: str, colour: str, states: tuple[str, ...] = GOOD
    ) -> tuple[Name, ...]:
        """Return the name of a line, to be written where the line ends; nothing for no line."""
        for point in reversed(self.points):
            found = value(point)
            if found is not None and point.state in states:
                ended = self.end - point.time > GAP_FACTOR * self.interval
                return (Name(found, name, colour, self.look.x(point.time) if ended else None),)
        return ()


def ground(frame: Frame, height: int, *, right: int = RIGHT) -> Figure:
    """Return a figure with axes, rung stretches and nothing else."""
    look = frame.look
    span = max(frame.end - frame.start, 1.0)
    axis = {
        "gridcolor": look.grid,
        "zeroline": False,
        "ticklabelstandoff": 5,
        "tickfont": {"size": 12},
        "fixedrange": True,
    }
    layout = {
        "height": height,
        "margin": {"l": 50, "r": right, "t": 8, "b": 24},
        "font": {**FONT, "color": look.text},
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hovermode": "x",
        "hoverlabel": {"font": {"size": 12}, "align": "left"},
        "uirevision": "keep",
        "dragmode": "zoom",
        "xaxis": {
            **axis,
            "fixedrange": False,
            "type": "date",
            "range": [look.x(frame.start), look.x(frame.end + 0.01 * span)],
            "showgrid": False,
            "nticks": 8,
            "tickformatstops": [
                {"dtickrange": [None, 60_000], "value": "%H:%M:%S"},
                {"dtickrange": [60_000, 86_400_000], "value": "%H:%M"},
                {"dtickrange": [86_400_000, None], "value": "%b %d"},
            ],
            "hoverformat": "%H:%M:%S",
        },
        "yaxis": {**axis, "rangemode": "tozero", "nticks": 6},
        "shapes": [],
        "annotations": [],
    }
    figure: Figure = {"data": [], "layout": layout}
    for stretch in frame.spans:
        if stretch.rung != "as-found":
            layout_shapes(figure).append(
                {
                    "type": "rect",
                    "xref": "x",
                    "yref": "y domain",
                    "x0": look.x(stretch.start),
                    "x1": look.x(stretch.end),
                    "y0": 0,
                    "y1": 1,
                    "line": {"width": 0},
                    "fillcolor": look.shade,
                    "layer": "below",
                }
            )
    return figure


def layout_shapes(figure: Figure) -> list[Item]:
    """Return the list of shapes of a figure, to add to."""
    shapes: list[Item] = figure["layout"]["shapes"]
    return shapes


def notes(figure: Figure) -> list[Item]:
    """Return the list of annotations of a figure, to add to."""
    found: list[Item] = figure["layout"]["annotations"]
    return found


def level(figure: Figure, y: float, name: str, colour: str, dash: str = "dash") -> None:
    """Add a level across the chart with its name at the right edge."""
    layout_shapes(figure).append(
        {
            "type": "line",
            "xref": "x domain",
            "x0": 0,
            "x1": 1,
            "y0": y,
            "y1": y,
            "line": {"color": colour, "width": 1.4, "dash": dash},
        }
    )
    name_lines(figure, [Name(y, name, colour)], least=0)


def name_lines(figure: Figure, lines: Sequence[Name], *, least: float) -> None:
    """Write names beside their lines, moved apart where they are closer than `least`."""
    heights: dict[float | None, float] = {}
    for line in sorted(lines, key=lambda n: n.y):
        y = max(line.y, heights.get(line.x, float("-inf")) + least)
        heights[line.x] = y
        notes(figure).append(
            {
                "xref": "paper" if line.x is None else "x",
                "x": 1 if line.x is None else line.x,
                "xanchor": "left",
                "xshift": 4,
                "y": y,
                "yanchor": "middle",
                "text": line.text,
                "showarrow": False,
                "font": {"size": 13, "color": line.colour},
            }
        )


def say_if_blank(figure: Figure, value: Value, frame: Frame, text: str) -> None:
    """Say in the middle of a chart why nothing is drawn, where nothing is."""
    if all(value(point) is None for point in frame.points):
        notes(figure).append(
            {
                "xref": "x domain",
                "yref": "y domain",
                "x": 0.5,
                "y": 0.36,
                "text": text,
                "showarrow": False,
                "font": {"size": 13, "color": frame.look.quiet},
            }
        )


def of_class(name: str, what: str) -> Value:
    """Return a function from a point to one number of one class."""

    def value(point: Point) -> float | None:
        found = point.classes.get(name)
        if found is None:
            return None
        number: float | None = getattr(found, what)
        return number

    return value
