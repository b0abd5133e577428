"""Snapshots straight from metrics pages (policy: source.direct.urls)."""

from __future__ import annotations

from collections.abc import Sequence

from specdrift.adapters.exposition import parse_exposition
from specdrift.adapters.scrape import Scraper, shown_url
from specdrift.core.engines.registry import read_page, wanted
from specdrift.core.windows import Snapshot
from specdrift.errors import TargetError


class DirectSource:
    """Reads each page once per tick; an engine that does not answer is a snapshot with a reason.

    Args:
        urls: Base or metrics addresses.
        scraper: Keeps the connections; its time-out must be below the scrape interval.
    """

    def __init__(self, urls: Sequence[str], scraper: Scraper) -> None:
        self._urls = tuple(urls)
        self._scraper = scraper

    def collect(self, now: float) -> list[Snapshot]:
        """Return one snapshot per engine found on the pages."""
        snapshots: list[Snapshot] = []
        for url in self._urls:
            snapshots.extend(self._page(url, now))
        return snapshots

    def _page(self, url: str, now: float) -> list[Snapshot]:
        shown = shown_url(url)
        try:
            page = self._scraper.fetch(url)
            found = read_page(parse_exposition(page.text, wanted, where=shown), where=shown)
        except TargetError as error:
            return [Snapshot(shown, now, None, str(error))]
        if len(found) == 1:
            return [Snapshot(shown, now, found[0])]
        return [Snapshot(f"{shown}#{c.model_name}/{c.engine}", now, c) for c in found]

    def engine_version(self) -> str | None:
        """Return what /version says at the first page's server, None when it does not answer."""
        try:
            answer = self._scraper.fetch_json(self._urls[0], "/version")
        except TargetError:
            return None
        version = answer.get("version") if isinstance(answer, dict) else None
        return version if isinstance(version, str) else None

    def healthy(self, url: str) -> bool:
        """Tell whether a health address answers with a success."""
        return self._scraper.answers(url)
