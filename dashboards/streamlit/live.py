"""What the pages share: the data, the head with the state in words, the choice of time and class.

A page is one fragment that draws itself again every two seconds; the rest of Streamlit rests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

import segments
import words
from answers import Explanation, State
from client import DEFAULT_URL, ENV_URL, Api, ApiProblem, NothingStored
from history import Data, History
from theme import Figure, Frame, Look

EVERY_SECONDS = 2
DRAWN_POINTS = 600
STALE_INTERVALS = 5
MOST_BANNERS = 3
ALL_CLASSES = "all classes"
RANGES: dict[str, float | None] = {
    "auto": None,
    "2 min": 120.0,
    "10 min": 600.0,
    "1 h": 3600.0,
    "6 h": 21600.0,
    "24 h": 86400.0,
}
# Less air above the head, so that the whole story fits on one screen.
STYLE = """<style>
[data-testid="stMainBlockContainer"] {padding-top: 3.6rem; padding-bottom: 2rem;}
[data-testid="stMetricValue"] {font-size: 1.6rem;}
h3 {font-size: 1.5rem !important; padding: 0 !important;}
[data-testid="stMetric"] {padding: 0 !important;}
[data-testid="stMetric"] > div {padding: 0.55rem 0.9rem !important;}
[data-testid="stTable"] td div {max-width: none !important;}
</style>"""


@dataclass(frozen=True, slots=True)
class View:
    """What a page draws: the data, the stretch of time and the class that were asked for."""

    data: Data
    state: State
    frame: Frame
    step: int
    classes: tuple[str, ...]
    at: Callable[[float | None], str]


@st.cache_resource(show_spinner=False, max_entries=8)
def _history(url: str) -> History:
    return History(Api(url))


@st.cache_data(ttl=60, max_entries=200, show_spinner=False)
def explain(url: str, number: int) -> Explanation:
    """Return a decision run again; cached, for its inputs never change."""
    return Api(url).explain(number)


def api_url() -> str:
    """Return where the API is."""
    return os.environ.get(ENV_URL, "") or DEFAULT_URL


def show(body: Callable[[View], None]) -> None:
    """Draw a page now and again every two seconds."""
    st.html(STYLE)

    @st.fragment(run_every=EVERY_SECONDS)
    def live() -> None:
        _draw(body)

    live()


def _draw(body: Callable[[View], None]) -> None:
    try:
        history = _history(api_url())
    except ApiProblem as problem:
        say(problem)
        return
    data = history.get(RANGES.get(str(st.session_state.get("range", "auto"))))
    if data.state is None:
        st.subheader("specdrift")
        if data.problem is not None:
            say(data.problem)
        return
    at = words.clock(_zone())
    _head(data, data.state, at)
    chosen = _controls(data.state)
    body(_view(data, data.state, chosen, at))


def say(problem: ApiProblem) -> None:
    """Say what is wrong, where, why, and what to try."""
    said = f"**{problem.what}** (`{problem.where}`): {plain(problem.why)}.  \n"
    said += f"What to try: {plain(problem.hint)}."
    if isinstance(problem, NothingStored):
        st.info(said, icon=":material/hourglass_top:")
    else:
        st.error(said, icon=":material/cloud_off:")


def _zone() -> tzinfo:
    """Return the viewer's time zone."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _head(data: Data, state: State, at: Callable[[float | None], str]) -> None:
    status = words.status(state)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(plain(state.workload), anchor=False, width="content")
        if state.simulated:
            st.badge("simulated engine", icon=":material/science:", color="orange")
        st.badge(status.label, icon=status.icon, color=status.colour, help=status.meaning)
        found = state.rung == words.RUNG_AS_FOUND
        st.badge(
            f"in force: {f'as found ({state.config_key})' if found else state.rung or 'unknown'}",
            icon=":material/tune:",
            color="gray" if found else "violet",
        )
        if doing := words.doing(state):
            st.badge(doing, icon=":material/autorenew:", color="blue")
        st.badge(
            f"mode: {state.mode or 'unknown'}" + (", paused" if state.paused else ""), color="gray"
        )
        _age(data, state)
    if data.problem is not None:
        say(data.problem)
        st.caption("Below: the last data that were read.")
    elif status.label in ("engine down", "metrics missing"):
        st.error(f"**{status.label.capitalize()}.** {status.meaning}", icon=status.icon)
    alarmed = [c for c in state.classes if c.side is not None]
    for c in alarmed[:MOST_BANNERS]:
        st.warning(words.drifted(c, at), icon=":material/warning:")
    if len(alarmed) > MOST_BANNERS:
        st.caption(f"and {len(alarmed) - MOST_BANNERS} more classes; see the table of classes")
    st.markdown(_last_decision(state, at))


def _last_decision(state: State, at: Callable[[float | None], str]) -> str:
    if not state.sentence:
        return f"No decision yet: {words.status(state).meaning}"
    kind = words.KINDS.get(state.decision_kind, state.decision_kind)
    said = f"**{at(state.decision_time)} {kind}.** {plain(state.sentence)}"
    if state.next_probe_at is not None and state.next_probe_at > state.time:
        said += f" Next probe in {words.span(state.next_probe_at - state.time)}."
    return said


def _age(data: Data, state: State) -> None:
    age = data.age or 0.0
    if age > STALE_INTERVALS * state.scrape_interval:
        st.badge(
            f"data {words.span(age)} old",
            icon=":material/schedule:",
            color="red",
            help="No tick for five scrape intervals: see whether the specdrift service still runs.",
        )
    else:
        st.badge(f"data {words.span(age)} old", icon=":material/schedule:", color="gray")


def plain(said: str) -> str:
    """Return a text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#$~|:" else c for c in said)


def _controls(state: State) -> str:
    """Ask for the stretch of time and the class; both live in the page's address."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.segmented_control(
            "Time range",
            list(RANGES),
            default="auto",
            required=True,
            key="range",
            bind="query-params",
            label_visibility="collapsed",
        )
        options = [ALL_CLASSES, *sorted(c.name for c in state.classes)]
        if len(options) <= 2:
            return ALL_CLASSES
        chosen = st.segmented_control(
            "Traffic class",
            options,
            default=ALL_CLASSES,
            required=True,
            key="class",
            bind="query-params",
            label_visibility="collapsed",
        )
    return str(chosen or ALL_CLASSES)


def _view(data: Data, state: State, chosen: str, at: Callable[[float | None], str]) -> View:
    seconds = RANGES.get(str(st.session_state.get("range", "auto")))
    points = data.points
    if seconds is not None:
        points = tuple(p for p in points if p.time >= state.time - seconds)
    else:
        points = points[-DRAWN_POINTS:]
    drawn, step = segments.thin(points, DRAWN_POINTS)
    start = drawn[0].time if drawn else state.time - 60.0
    look = Look(dark=st.context.theme.type == "dark", zone=_zone())
    frame = Frame(drawn, start, max(state.time, start), state.scrape_interval * step, look)
    seen = sorted({c.name for c in state.classes} | {n for p in drawn for n in p.classes})
    classes = tuple(seen) if chosen == ALL_CLASSES else (chosen,)
    return View(data, state, frame, step, classes, at)


def chart(figure: Figure, key: str, says: str) -> None:
    """Draw a figure; `says` is its content for those who cannot see it."""
    st.plotly_chart(figure, theme=None, key=key, config={"displayModeBar": False}, alt=says)


def title(name: str, explained: str) -> None:
    """Write the title of a chart, and in small what its marks mean."""
    st.markdown(f"**{name}** :gray[:small[{explained}]]")
