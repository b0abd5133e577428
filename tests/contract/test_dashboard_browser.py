"""The page as a person sees it: Streamlit started as in production, opened in Chromium."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.error import URLError

from tests.conftest import require_package
from tests.contract.dashboard_fake import PAGE, FakeApi

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
UP_WITHIN = 20.0


@contextmanager
def page_of(api: FakeApi) -> Iterator[str]:
    """Run the page; give its address once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
    env = {**os.environ, "SPECDRIFT_API_URL": api.url}
    child = subprocess.Popen(
        command,
        cwd=PAGE,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + UP_WITHIN
        while True:
            try:
                with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1):
                    break
            except (URLError, OSError):
                assert child.poll() is None, "Streamlit ended"
                assert time.monotonic() < deadline, "the page is not up"
                time.sleep(0.1)
        yield url
    finally:
        child.terminate()
        child.wait(timeout=10)


def test_page_in_a_browser(require: Callable[..., str]) -> None:
    chromium = require("chromium", "chromium-browser", "google-chrome")
    require_package("playwright")
    require_package("streamlit")
    from playwright.sync_api import expect, sync_playwright

    with FakeApi() as api, page_of(api) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        called: list[str] = []
        page.on("request", lambda request: called.append(request.url))
        # a link to a page works on a server that nobody has visited yet
        page.goto(f"{url}/decisions")
        expect(page.get_by_role("link", name="Overview")).to_be_visible(timeout=30_000)
        page.goto(url)
        expect(page.get_by_text("simulated-llama").first).to_be_visible(timeout=30_000)
        expect(page.get_by_text("simulated engine").first).to_be_visible()
        # every chart is drawn, and the timeline tells the story in words
        for word in ("alarm: code", "switched to off", "verified", "recovered", "break-even"):
            expect(page.get_by_text(re.compile(word)).first).to_be_visible(timeout=30_000)
        charts = page.get_by_test_id("stPlotlyChart")
        assert charts.count() == 6
        assert page.get_by_test_id("stException").count() == 0
        assert not re.search(r"\bNaN\b|undefined|Traceback", page.inner_text("body"))
        # choices live in the address
        page.get_by_role("radio", name="code", exact=True).click()
        page.wait_for_url("**class=code**", timeout=15_000)
        # the other pages
        for name, text in (("Latency", "Change to look at"), ("Decisions", "newest first")):
            page.get_by_role("link", name=name).click()
            expect(page.get_by_text(text).first).to_be_visible(timeout=30_000)
            assert page.get_by_test_id("stException").count() == 0
        # nothing is asked of anybody else
        outside = [
            u for u in called if not re.match(r"(https?|ws)://127\.0\.0\.1[:/]|data:|blob:", u)
        ]
        assert outside == [], sorted(set(outside))
        browser.close()
