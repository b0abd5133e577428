"""The API over HTTP: typed answers (answers.py), and one sentence where there is none."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from answers import Alarm, Decision, Explanation, Point, Row, State, row, rows, text, texts
from specdrift import conventions as names

DEFAULT_URL = f"http://{names.LOOPBACK}:{names.PORT_API}"
ENV_URL = "SPECDRIFT_API_URL"
TIMEOUT_SECONDS = 3.0
LARGEST_ANSWER = 32 * 1024 * 1024

T = TypeVar("T")


class ApiProblem(Exception):
    """The API did not answer with what was asked for: what, where, why, what to try."""

    def __init__(self, what: str, *, where: str, why: str, hint: str) -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        super().__init__(f"{what} ({where}): {why}. Try: {hint}")


class NothingStored(ApiProblem):
    """The API is there and has nothing to show yet."""


class Api:
    """The read routes of one specdrift service."""

    def __init__(self, url: str = DEFAULT_URL, timeout: float = TIMEOUT_SECONDS) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ApiProblem(
                "The address of the specdrift API is not a URL",
                where=self.url or f"{ENV_URL} is empty",
                why="it needs http:// or https:// and a host",
                hint=f"set {ENV_URL}, e.g. to {DEFAULT_URL}",
            )
        local = parts.hostname in ("localhost", names.LOOPBACK, "::1")
        # A proxy of the environment has nothing to do with this machine's own service.
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._opener = urllib.request.build_opener(*proxies)

    def state(self) -> State:
        """Return the workload now."""
        answer = row(self._get("state"))
        if "workload" not in answer or "time" not in answer:
            raise _somebody_else(f"{self.url}/api/v1/state", "the answer names no workload")
        return State.of(answer)

    def series(self, since: float, limit: int) -> tuple[Point, ...]:
        """Return the newest `limit` points after `since`, oldest first."""
        answer = row(self._get("series", since=since, limit=limit))
        return tuple(Point.of(p) for p in rows(answer.get("points")))

    def decisions(self, limit: int) -> tuple[Decision, ...]:
        """Return decisions, newest first."""
        return self._newest("decisions", limit, Decision.of, lambda d: d.time)

    def alarms(self, limit: int) -> tuple[Alarm, ...]:
        """Return alarms, newest first."""
        return self._newest("alarms", limit, Alarm.of, lambda a: a.time)

    def explain(self, number_of_decision: int) -> Explanation:
        """Return a decision, run again."""
        answer = row(self._get(f"explain/{number_of_decision}"))
        same = answer.get("identical")
        return Explanation(
            texts(answer.get("lines")),
            same if isinstance(same, bool) else None,
            texts(answer.get("differences")),
        )

    def _newest(
        self, what: str, limit: int, of: Callable[[Row], T], time: Callable[[T], float]
    ) -> tuple[T, ...]:
        found = (of(r) for r in rows(row(self._get(what, limit=limit)).get(what)))
        return tuple(sorted(found, key=time, reverse=True))

    def _get(self, path: str, **query: float) -> object:
        url = f"{self.url}/api/v1/{path}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        try:
            with self._opener.open(url, timeout=self._timeout) as answer:
                body = answer.read(LARGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(url, error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unreachable(self.url, error) from error
        try:
            if len(body) > LARGEST_ANSWER:
                raise ValueError("the answer is larger than 32 MiB")
            return json.loads(body)
        except ValueError as error:
            raise _somebody_else(url, "the answer is not JSON") from error


def _somebody_else(url: str, why: str) -> ApiProblem:
    return ApiProblem(
        "Something answered that is not the specdrift API",
        where=url,
        why=why,
        hint=f"check the host and port in {ENV_URL}",
    )


def _unreachable(url: str, error: Exception) -> ApiProblem:
    reason = getattr(error, "reason", error)
    why = {
        "ConnectionRefusedError": "nothing listens there",
        "TimeoutError": f"no answer within {TIMEOUT_SECONDS:g} s",
        "gaierror": "the host name is not known",
    }.get(type(reason).__name__, f"{reason}"[:160] or type(reason).__name__)
    return ApiProblem(
        "The specdrift API cannot be reached",
        where=url,
        why=why,
        hint=f"see whether specdrift still runs in its terminal or pod, or set {ENV_URL}",
    )


def _refused(url: str, error: urllib.error.HTTPError) -> ApiProblem:
    body = error.read(4096).decode("utf-8", "replace")
    try:
        said = text(row(json.loads(body)).get("error"))
    except ValueError:
        said = ""
    why = f"HTTP {error.code}" + (f", {' '.join(said.split())[:200]}" if said else "")
    if error.code == HTTPStatus.SERVICE_UNAVAILABLE and "no tick" in said:
        return NothingStored(
            "Nothing is stored yet",
            where=url,
            why="no tick has completed",
            hint="wait for the first scrape of the engine; the page looks again by itself",
        )
    return ApiProblem(
        "The specdrift API refused to answer",
        where=url,
        why=why,
        hint="look at the log of the specdrift service",
    )
