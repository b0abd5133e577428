"""HTTP GET of an engine's pages: bounded, timed out, checked, without redirects."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx2

from specdrift import __version__
from specdrift.errors import NotAnExposition, TargetError, TargetUnreachable, UsageError, clip

DEFAULT_TIMEOUT: Final = 5.0
DEFAULT_MAX_BYTES: Final = 16 * 1024 * 1024
METRICS_PATH: Final = "/metrics"
EXAMPLE: Final = "http://127.0.0.1:8000 or http://127.0.0.1:8000/metrics"
_TEXT_TYPES: Final = ("text/plain", "application/openmetrics-text")
_ACCEPT: Final = "text/plain;version=0.0.4, application/openmetrics-text;q=0.5, */*;q=0.1"
_LOOPBACKS: Final = ("all://127.0.0.1", "all://localhost", "all://[::1]")


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read.

    Attributes:
        seconds: How long it took, from the request to the last byte.
    """

    text: str
    content_type: str
    seconds: float


def normalise_url(url: str) -> str:
    """Return the address of the metrics page for a base URL or a metrics URL.

    `host:port` gets `http://`; an address without a path gets `/metrics`; a path that is there
    stays (`/prometheus/metrics`), but for the API's own `/v1`, which is no part of the base.

    Raises:
        UsageError: The text is no HTTP address.
    """
    text = url.strip()
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no address", why=str(error), hint=EXAMPLE) from error
    if parts.scheme not in ("http", "https") or not host or any(c.isspace() for c in text):
        raise UsageError(f"{url!r} is no HTTP address", hint=EXAMPLE)
    path = parts.path.rstrip("/")
    if path in ("", "/v1"):
        path = METRICS_PATH
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def shown_url(url: str) -> str:
    """Return an address without user name and password, for messages and output."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def sibling_url(url: str, path: str) -> str:
    """Return the address of another page of the same server, such as /version."""
    parts = urlsplit(normalise_url(url))
    base = parts.path.removesuffix(METRICS_PATH).removesuffix("/prometheus")
    return urlunsplit((parts.scheme, parts.netloc, base + path, "", ""))


class Scraper:
    """Reads pages of engines over connections that are kept open.

    Args:
        timeout: Seconds for the whole of one page, however slowly it trickles.
        max_bytes: The largest body that is read, after decompression.
        transport: Where requests go; for tests.
        clock: Monotonic seconds; for tests.
    """

    def __init__(
        self,
        timeout: float = DEFAULT_TIMEOUT,
        max_bytes: int = DEFAULT_MAX_BYTES,
        *,
        transport: httpx2.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._clock = clock
        self._client = httpx2.Client(
            timeout=timeout,
            follow_redirects=False,
            transport=transport,
            # A proxy of the environment is for the world outside, never for this machine.
            mounts=None if transport else dict.fromkeys(_LOOPBACKS),
            headers={
                "user-agent": f"specdrift/{__version__}",
                "accept": _ACCEPT,
                "accept-encoding": "identity",
            },
        )

    def __enter__(self) -> Scraper:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def fetch(self, url: str) -> Page:
        """Return the metrics page of a base URL or metrics URL.

        Raises:
            UsageError: The text is no HTTP address.
            TargetUnreachable: Nothing answered, or not in time.
            NotAnExposition: The content type is not that of an exposition.
            TargetError: The status is not 200, or the body is larger than the bound.
        """
        address = normalise_url(url)
        shown = shown_url(address)
        began = self._clock()
        body, content_type, encoding = self._get(address, "the metrics page")
        media = content_type.partition(";")[0].strip().lower()
        if media and media not in _TEXT_TYPES:
            raise NotAnExposition(
                "the page is no Prometheus exposition",
                where=shown,
                why=f"its content type is {clip(media, 60)}",
                hint="the engine's own address; TensorRT-LLM's page is /prometheus/metrics",
            )
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError as error:
            raise NotAnExposition(
                "the page is no Prometheus exposition", where=shown, why="not UTF-8 text"
            ) from error
        return Page(text, content_type, self._clock() - began)

    def fetch_json(self, url: str, path: str) -> Any:
        """Return the JSON of another page of the server, such as `/version`.

        Raises:
            TargetUnreachable: Nothing answered, or not in time.
            TargetError: The status is not 200, or the body is too large or no JSON.
        """
        address = sibling_url(url, path)
        body, _, _ = self._get(address, f"the page {path}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise TargetError(
                f"the page {path} is no JSON", where=shown_url(address), why=str(error)
            ) from error

    def answers(self, url: str) -> bool:
        """Tell whether an address answers a GET with a success within the time-out."""
        try:
            return self._client.get(url).is_success
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return False  # not serving is an answer here, not a failure

    def _get(self, address: str, what: str) -> tuple[bytes, str, str]:
        """Return body, content type and encoding of a page with status 200."""
        shown = shown_url(address)
        began = self._clock()
        try:
            with self._client.stream("GET", address) as response:
                self._check_status(response, shown, what)
                body = self._read(response, shown, what, began)
                return body, response.headers.get("content-type", ""), "utf-8"
        except httpx2.TimeoutException as error:
            raise self._too_late(shown, what) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise UsageError(f"{shown!r} is no HTTP address", hint=EXAMPLE) from error
        except httpx2.ConnectError as error:
            raise _no_connection(error, shown, what) from error
        except httpx2.HTTPError as error:
            raise TargetUnreachable(
                f"cannot read {what}",
                where=shown,
                why=f"the connection broke ({str(error) or type(error).__name__})",
                hint="again; and whether this port speaks HTTP (or HTTPS)",
            ) from error

    def _check_status(self, response: httpx2.Response, shown: str, what: str) -> None:
        status = response.status_code
        if status == 200:
            return
        if response.is_redirect:
            target = clip(response.headers.get("location", "elsewhere"), 80)
            why, hint = f"it redirects to {target} (status {status})", "that address itself"
        elif status in (401, 403):
            why, hint = f"access was refused (status {status})", "the credentials, or a port inside"
        elif status == 404:
            why, hint = f"there is no such page (status {status})", "the engine's own base address"
        else:
            why, hint = f"it answered with status {status}", "again, and the server's log"
        raise TargetError(f"cannot read {what}", where=shown, why=why, hint=hint)

    def _read(self, response: httpx2.Response, shown: str, what: str, began: float) -> bytes:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > self._max_bytes:
                raise TargetError(
                    f"{what} is too large",
                    where=shown,
                    why=f"stopped reading at {self._max_bytes / 1048576:g} MiB",
                    hint="the engine's own address; no engine's page is that large",
                )
            if self._clock() - began > self._timeout:
                raise self._too_late(shown, what)
        return bytes(body)

    def _too_late(self, shown: str, what: str) -> TargetUnreachable:
        return TargetUnreachable(
            f"cannot read {what}",
            where=shown,
            why=f"no complete answer within {self._timeout:g} s",
            hint="whether the server is overloaded or starting, or a longer --timeout",
        )


def _no_connection(error: httpx2.ConnectError, shown: str, what: str) -> TargetUnreachable:
    text = str(error)
    lowered = text.lower()
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None or "ssl" in lowered or "certificate" in lowered:
        why, hint = f"TLS failed ({text})", "http:// if the port has no TLS, or its certificate"
    elif "refused" in lowered:
        why, hint = "connection refused", "whether the server runs, and its port"
    elif "name or service" in lowered or "getaddrinfo" in lowered or "resolution" in lowered:
        why, hint = "the host name is not known", "the spelling of the host, or its IP address"
    else:
        why, hint = f"no connection ({text})", "whether the address can be reached from here"
    return TargetUnreachable(f"cannot read {what}", where=shown, why=why, hint=hint)


def fetch(
    url: str,
    timeout: float = DEFAULT_TIMEOUT,
    max_bytes: int = DEFAULT_MAX_BYTES,
    *,
    transport: httpx2.BaseTransport | None = None,
) -> Page:
    """Return one metrics page over a connection of its own; see `Scraper.fetch`."""
    with Scraper(timeout, max_bytes, transport=transport) as scraper:
        return scraper.fetch(url)


def fetch_json(
    url: str,
    path: str,
    timeout: float = DEFAULT_TIMEOUT,
    max_bytes: int = DEFAULT_MAX_BYTES,
    *,
    transport: httpx2.BaseTransport | None = None,
) -> Any:
    """Return one JSON page of the server; see `Scraper.fetch_json`."""
    with Scraper(timeout, max_bytes, transport=transport) as scraper:
        return scraper.fetch_json(url, path)
