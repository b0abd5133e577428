"""The scraper against a real HTTP server: keep-alive, bounds, time limits, broken answers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from specdrift.adapters.exposition import parse_exposition
from specdrift.adapters.scrape import Scraper, fetch, fetch_json
from specdrift.core.engines import registry
from specdrift.errors import NotAnExposition, TargetError, TargetUnreachable
from tests.support.pages import fixture
from tests.support.web import Answer, free_port, serve


def test_a_real_page_and_version_over_one_connection() -> None:
    asked: list[str] = []

    def answer(path: str) -> Answer:
        asked.append(path)
        if path == "/version":
            return Answer('{"version":"0.32.0"}', content_type="application/json")
        return Answer(fixture("ngram-after-traffic"))

    with serve(answer) as url, Scraper() as scraper:
        for given in (url, f"{url}/metrics", url.removeprefix("http://")):
            page = scraper.fetch(given)
            (engine,) = registry.read_page(parse_exposition(page.text, registry.wanted))
            assert engine.spec is not None
            assert engine.spec.drafts == 60265
        assert scraper.fetch_json(url, "/version") == {"version": "0.32.0"}
        assert fetch_json(f"{url}/metrics", "/version") == {"version": "0.32.0"}
    assert asked == ["/metrics"] * 3 + ["/version"] * 2


def test_100_megabytes_stop_at_the_bound() -> None:
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1600):
            sent += 65536
            yield b"# some text \n" * 5041

    with (
        serve(lambda path: Answer(body())) as url,
        pytest.raises(TargetError, match="stopped reading at 16 MiB"),
    ):
        fetch(url)
    assert sent < 40_000_000


def test_a_body_that_trickles_for_ever() -> None:
    def body() -> Iterator[bytes]:
        for _ in range(100):
            time.sleep(0.05)
            yield b"# x\n"

    with serve(lambda path: Answer(body())) as url:
        began = time.monotonic()
        with pytest.raises(TargetUnreachable, match=r"within 0\.3 s"):
            fetch(url, timeout=0.3)
        assert time.monotonic() - began < 2


def test_a_server_that_never_answers() -> None:
    def answer(path: str) -> Answer:
        time.sleep(1.0)
        return Answer()

    with serve(answer) as url, pytest.raises(TargetUnreachable, match=r"within 0\.2 s"):
        fetch(url, timeout=0.2)


def test_nothing_listens() -> None:
    with pytest.raises(TargetUnreachable, match="connection refused"):
        fetch(f"http://127.0.0.1:{free_port()}")


def test_no_such_host() -> None:
    with pytest.raises(TargetUnreachable, match=r"host name|no connection"):
        fetch("http://host.invalid:8000")


def test_tls_where_there_is_none() -> None:
    with serve(lambda path: Answer()) as url, pytest.raises(TargetUnreachable, match="TLS failed"):
        fetch(url.replace("http:", "https:"))


def test_redirects_are_not_followed() -> None:
    answer = Answer(status=302, headers={"Location": "http://127.0.0.1:1/elsewhere"})
    with serve(lambda path: answer) as url, pytest.raises(TargetError, match="it redirects to"):
        fetch(url)


def test_an_html_page_with_status_200() -> None:
    page = "<html><body>Service Unavailable</body></html>"
    with (
        serve(lambda path: Answer(page, content_type="text/html")) as url,
        pytest.raises(NotAnExposition, match="text/html"),
    ):
        fetch(url)


def test_a_body_shorter_than_it_said() -> None:
    with (
        serve(lambda path: Answer("# TYPE a counter\na 1\n", claimed_length=500)) as url,
        pytest.raises(TargetUnreachable, match="the connection broke"),
    ):
        fetch(url)
