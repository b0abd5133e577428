"""The Streamlit page as a child process that asks nothing and calls nobody."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import specdrift
from specdrift.adapters.localproc import die_with_parent
from specdrift.conventions import LOOPBACK
from specdrift.errors import SpecdriftError

START_TIMEOUT = 60.0


def page_file() -> Path:
    """Return the page's file: in the wheel beside the package, in a checkout at dashboards/.

    Raises:
        SpecdriftError: It is in neither place.
    """
    package = Path(specdrift.__file__).parent
    for candidate in (
        package / "_dashboards" / "streamlit" / "app.py",
        package.parent.parent / "dashboards" / "streamlit" / "app.py",
    ):
        if candidate.is_file():
            return candidate
    raise SpecdriftError("the page's files are not installed", hint="reinstalling specdrift")


class Page:
    """Runs the page on loopback.

    Args:
        api_url: Where the API listens.
        port: Wanted port; 0 or one that is taken: another free one.
    """

    def __init__(self, api_url: str, port: int) -> None:
        self._api_url = api_url
        self._port = _usable(port)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            SpecdriftError: Streamlit is not installed, or the page does not come up.
        """
        if importlib.util.find_spec("streamlit") is None:
            raise SpecdriftError(
                "the page needs Streamlit, which is not installed",
                hint="pip install 'specdrift[dashboard]', or demo --headless",
            )
        file = page_file()
        self._child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "streamlit",
                "run",
                str(file),
                f"--server.port={self._port}",
                f"--server.address={LOOPBACK}",
                "--server.headless=true",
                "--server.fileWatcherType=none",
                "--server.showEmailPrompt=false",
                "--browser.gatherUsageStats=false",
            ],
            cwd=file.parent,
            env={**os.environ, "SPECDRIFT_API_URL": self._api_url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call, no threads touched
        )
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                break
            if _answers(f"{self.url}/_stcore/health"):
                return
            time.sleep(0.1)
        code = self._child.poll()
        self.stop()
        raise SpecdriftError(
            "the page did not come up",
            where=self.url,
            why=f"Streamlit exited with {code}" if code is not None else "no answer in time",
            hint="another --dashboard-port, or demo --headless",
        )

    def stop(self) -> None:
        """Stop it and wait."""
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(timeout=3)


def _usable(port: int) -> int:
    for wanted in (port, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SpecdriftError("no free port for the page", where=LOOPBACK)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
