"""Reading pages over HTTP: addresses, checks and bounds, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest

from specdrift.adapters.scrape import Scraper, fetch, fetch_json, normalise_url, shown_url
from specdrift.errors import NotAnExposition, TargetError, TargetUnreachable, UsageError

TEXT = {"content-type": "text/plain; version=1.0.0; charset=utf-8"}
URL = "http://host:8000"
Handler = Callable[[httpx2.Request], httpx2.Response]


def transport(handler: Handler) -> httpx2.MockTransport:
    return httpx2.MockTransport(handler)


def answer(status: int = 200, **kwargs: object) -> httpx2.MockTransport:
    return transport(lambda request: httpx2.Response(status, **kwargs))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://host:8000", "http://host:8000/metrics"),
        ("http://host:8000/", "http://host:8000/metrics"),
        ("http://host:8000/metrics", "http://host:8000/metrics"),
        ("http://host:8000/metrics/", "http://host:8000/metrics"),
        ("http://host:8000/v1", "http://host:8000/metrics"),
        ("host:8000", "http://host:8000/metrics"),
        ("host", "http://host/metrics"),
        ("[::1]:8000", "http://[::1]:8000/metrics"),
        ("https://host/prometheus/metrics?a=b#c", "https://host/prometheus/metrics?a=b"),
        (" http://u:p@host ", "http://u:p@host/metrics"),
    ],
)
def test_addresses(given: str, address: str) -> None:
    assert normalise_url(given) == address


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "http://",
        "ftp://host",
        "foo bar",
        "http://host:port",
        "http://host:99999",
        "http://[::1",
    ],
)
def test_no_addresses(bad: str) -> None:
    with pytest.raises(UsageError, match="address"):
        normalise_url(bad)


def test_credentials_are_sent_and_never_shown() -> None:
    seen: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers["authorization"])
        return httpx2.Response(500)

    with pytest.raises(TargetError) as caught:
        fetch("http://user:secret@host", transport=transport(handler))
    assert seen[0].startswith("Basic ")
    assert "secret" not in str(caught.value)
    assert shown_url("http://user:secret@host/x") == "http://host/x"


def test_a_page() -> None:
    page = fetch(URL, transport=answer(text="# TYPE a counter\n", headers=TEXT))
    assert page.text == "# TYPE a counter\n"
    assert page.content_type.startswith("text/plain")
    assert page.seconds >= 0


@pytest.mark.parametrize("media", ["application/openmetrics-text; version=1.0.0", "text/plain", ""])
def test_content_types_of_expositions(media: str) -> None:
    assert fetch(URL, transport=answer(content=b"x", headers={"content-type": media})).text == "x"


@pytest.mark.parametrize("media", ["text/html; charset=utf-8", "application/json"])
def test_other_content_types(media: str) -> None:
    with pytest.raises(NotAnExposition, match=media.partition(";")[0]):
        fetch(URL, transport=answer(content=b"x", headers={"content-type": media}))


@pytest.mark.parametrize(
    ("status", "why"),
    [(301, "redirects to http://elsewhere"), (401, "refused"), (404, "no such page"), (503, "503")],
)
def test_statuses(status: int, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        fetch(URL, transport=answer(status, headers={"location": "http://elsewhere"}))


def endless() -> Iterator[bytes]:
    while True:
        yield b"a" * 65536


def test_a_huge_body_stops_at_the_bound() -> None:
    with pytest.raises(TargetError, match="stopped reading at 1 MiB"):
        fetch(URL, max_bytes=1024 * 1024, transport=answer(content=endless(), headers=TEXT))


def test_a_body_that_trickles_for_ever_is_too_late() -> None:
    now = iter(range(10_000))
    with (
        Scraper(
            5, transport=answer(content=endless(), headers=TEXT), clock=lambda: next(now)
        ) as it,
        pytest.raises(TargetUnreachable, match="within 5 s"),
    ):
        it.fetch(URL)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (httpx2.ConnectError("[Errno 111] Connection refused"), "connection refused"),
        (httpx2.ConnectError("[Errno -2] Name or service not known"), "host name is not known"),
        (httpx2.ConnectError("[SSL: WRONG_VERSION_NUMBER] x"), "TLS failed"),
        (httpx2.ConnectError("No route to host"), "no connection"),
        (httpx2.ConnectTimeout("x"), "no complete answer within"),
        (httpx2.ReadTimeout("x"), "no complete answer within"),
        (httpx2.RemoteProtocolError("peer closed connection"), "the connection broke"),
    ],
)
def test_failures_of_the_connection(error: Exception, why: str) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise error

    with pytest.raises(TargetUnreachable, match=why) as caught:
        fetch(URL, transport=transport(handler))
    assert "http://host:8000/metrics" in str(caught.value)
    assert "Try: " in str(caught.value)


def test_other_pages_of_the_server() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"path": request.url.path})

    for given, path in (
        (URL, "/version"),
        (f"{URL}/metrics", "/version"),
        (f"{URL}/proxy/metrics", "/proxy/version"),
        (f"{URL}/prometheus/metrics", "/version"),
    ):
        assert fetch_json(given, "/version", transport=transport(handler)) == {"path": path}


def test_other_pages_that_are_no_json() -> None:
    with pytest.raises(TargetError, match="no JSON"):
        fetch_json(URL, "/version", transport=answer(text="<html>"))


def test_not_utf8() -> None:
    with pytest.raises(NotAnExposition, match="UTF-8"):
        fetch(URL, transport=answer(content=b"\xff\xfe", headers=TEXT))
