"""What the page knows: the newest state, points, decisions and alarms, fetched a bit at a time.

One `History` serves all browser tabs of one page process, so that more tabs ask no more often.
When the API goes away the last known data stay, with the problem said beside them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from answers import Alarm, Decision, Point, State
from client import Api, ApiProblem

AT_MOST_EVERY = 1.5
FIRST_POINTS = 600
MOST_POINTS = 5000
EVENTS = 200


@dataclass(frozen=True, slots=True)
class Data:
    """Everything a page draws from.

    Attributes:
        points: Oldest first.
        decisions, alarms: Newest first.
        problem: Why the newest request failed; None when all is well.
        age: Seconds since the newest state, by this machine's clock; None without a state.
    """

    state: State | None = None
    points: tuple[Point, ...] = ()
    decisions: tuple[Decision, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    problem: ApiProblem | None = None
    age: float | None = None


class History:
    """Keeps what was fetched and asks for what is new."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._depth = FIRST_POINTS
        self._data = Data()

    def get(self, seconds: float | None = None) -> Data:
        """Return the newest data, reaching `seconds` back (None: the last 600 windows)."""
        with self._lock:
            deeper = self._wants_deeper(seconds)
            now = self._clock()
            if deeper or not 0 <= now - self._asked < AT_MOST_EVERY:
                self._refresh(now, again=deeper)
            state = self._data.state
            age = max(0.0, now - state.time) if state is not None else None
            d = self._data
            return Data(d.state, d.points, d.decisions, d.alarms, d.problem, age)

    def _wants_deeper(self, seconds: float | None) -> bool:
        state = self._data.state
        if seconds is None or state is None:
            return False
        depth = min(MOST_POINTS, int(seconds / max(state.scrape_interval, 0.05)) + 10)
        if depth <= self._depth:
            return False
        self._depth = depth
        return True

    def _refresh(self, now: float, *, again: bool) -> None:
        known = self._data
        try:
            state = self._api.state()
            points = () if again or _another_store(known, state) else known.points
            since = points[-1].time if points else 0.0
            new = self._api.series(since, self._depth)
            kept = (*points, *(p for p in new if p.time > since))[-MOST_POINTS:]
            decisions, alarms = self._api.decisions(EVENTS), self._api.alarms(EVENTS)
            self._data = Data(state, kept, decisions, alarms)
        except ApiProblem as problem:
            self._data = Data(
                known.state, known.points, known.decisions, known.alarms, problem=problem
            )
        self._asked = now


def _another_store(known: Data, state: State) -> bool:
    """Tell whether these answers come from another workload or a store begun anew."""
    if known.state is None:
        return True
    return state.workload != known.state.workload or state.time < known.state.time
