"""Polling of engines for `specdrift watch`: pages in, one view per address out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from specdrift.adapters.exposition import parse_exposition
from specdrift.adapters.scrape import Page, Scraper, normalise_url, shown_url
from specdrift.core.engines import registry
from specdrift.core.engines.model import EngineCounters
from specdrift.core.summary import EngineState, EngineSummary, summarise
from specdrift.core.windows import Snapshot, Window, WindowState, window_between
from specdrift.errors import (
    EngineNotSupported,
    NotAnExposition,
    SpecdriftError,
    TargetError,
    TargetUnreachable,
)

HISTORY: Final = 60
MAX_THREADS: Final = 16
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TargetView:
    """One address at one moment.

    Attributes:
        url: The address as given, without credentials.
        state: A state of `EngineState`, or "down", "not_an_exposition", "not_supported", "error".
        engines: One summary per (model, engine) series on the page.
        total: The sum over the engines; None when there are several models, or no page.
        error: The sentence of what failed, when there is no page.
        age_seconds: Time since the last page that could be read; None when there was none.
        history: Acceptance of the last windows, oldest first, over all engines.
    """

    url: str
    state: str
    version: str | None = None
    engines: tuple[EngineSummary, ...] = ()
    total: EngineSummary | None = None
    error: str | None = None
    age_seconds: float | None = None
    scrape_seconds: float | None = None
    history: tuple[float | None, ...] = ()


class Target:
    """One address and what was read from it before."""

    def __init__(self, url: str, scraper: Scraper, clock: Callable[[], float]) -> None:
        self.url = shown_url(url)
        self._address = normalise_url(url)
        self._scraper = scraper
        self._clock = clock
        self._before: dict[Pair, Snapshot] = {}
        self._version: str | None = None
        self._version_asked = False
        self._last_success: float | None = None
        self._history: deque[float | None] = deque(maxlen=HISTORY)

    def poll(self) -> TargetView:
        """Read the page once; a failure is a state of the view, not an exception."""
        try:
            page = self._scraper.fetch(self._address)
            now = self._clock()
            where = shown_url(self._address)
            samples = parse_exposition(page.text, registry.wanted, where=where)
            counters = registry.read_page(samples, where=where)
        except SpecdriftError as error:
            self._history.append(None)
            age = None if self._last_success is None else self._clock() - self._last_success
            return TargetView(
                self.url,
                _failure(error),
                self._version,
                error=str(error),
                age_seconds=age,
                history=tuple(self._history),
            )
        return self._view(page, now, counters)

    def _view(self, page: Page, now: float, counters: Sequence[EngineCounters]) -> TargetView:
        self._last_success = now
        read: list[tuple[EngineCounters, Window]] = []
        for each in counters:
            pair = (each.model_name, each.engine)
            after = Snapshot(f"{self.url}/{pair[0]}/{pair[1]}", now, each)
            read.append((each, window_between(self._before.get(pair), after)))
            self._before[pair] = after
        self._ask_version(restarted=any(w.state is WindowState.RESTARTED for _, w in read))
        engines = tuple(summarise([(each, window)], engine=each.engine) for each, window in read)
        total = summarise(read) if len({each.model_name for each in counters}) == 1 else None
        self._history.append(total.window.spec.acceptance if total and total.window else None)
        return TargetView(
            self.url,
            total.state.value if total else _overall(engines),
            self._version,
            engines,
            total,
            age_seconds=max(0.0, self._clock() - now),
            scrape_seconds=page.seconds,
            history=tuple(self._history),
        )

    def _ask_version(self, *, restarted: bool) -> None:
        """Ask for the version once per engine process; an engine without the page has none."""
        if self._version_asked and not restarted:
            return
        self._version_asked = True
        try:
            answer = self._scraper.fetch_json(self._address, "/version")
        except TargetError:
            self._version = None
            return
        version = answer.get("version") if isinstance(answer, dict) else None
        self._version = version if isinstance(version, str) else None


def _failure(error: SpecdriftError) -> str:
    if isinstance(error, TargetUnreachable):
        return "down"
    if isinstance(error, NotAnExposition):
        return "not_an_exposition"
    return "not_supported" if isinstance(error, EngineNotSupported) else "error"


def _overall(engines: Sequence[EngineSummary]) -> str:
    """Return the state of several models: that of all if it is one, else the best known."""
    states = [engine.state for engine in engines]
    return (EngineState.OK if EngineState.OK in states else states[0]).value


class Fleet:
    """Several addresses, polled side by side so that a slow one does not hold up the others."""

    def __init__(self, urls: Sequence[str], scraper: Scraper) -> None:
        began, wall = time.monotonic(), time.time()
        # Wall time that never jumps: a corrected clock must not look like a window.
        clock = lambda: wall + time.monotonic() - began  # noqa: E731
        self._targets = [Target(url, scraper, clock) for url in urls]
        self._threads = ThreadPoolExecutor(
            min(len(self._targets), MAX_THREADS), thread_name_prefix="scrape"
        )

    def poll(self) -> list[TargetView]:
        """Read every page once."""
        return list(self._threads.map(Target.poll, self._targets))

    def close(self) -> None:
        """Stop the threads without waiting for slow targets."""
        self._threads.shutdown(wait=False, cancel_futures=True)
