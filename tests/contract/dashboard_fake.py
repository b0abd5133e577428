"""A stand-in for the API: a recorded story (tests/fixtures/api), moved to now, and edits of it."""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "api"
PAGE = ROOT / "dashboards" / "streamlit"
if str(PAGE) not in sys.path:
    sys.path.append(str(PAGE))  # as `streamlit run` does for the page's own modules


def recorded(name: str) -> Any:
    """Return a recorded answer."""
    return json.loads((FIXTURES / f"{name}.json").read_text())


def moved(value: Any, seconds: float) -> Any:
    """Return an answer with every unix time in it moved."""
    if isinstance(value, float) and value > 1e9:
        return value + seconds
    if isinstance(value, dict):
        return {key: moved(item, seconds) for key, item in value.items()}
    if isinstance(value, list):
        return [moved(item, seconds) for item in value]
    return value


class FakeApi:
    """Serves the story on a free loopback port; `with FakeApi() as api: api.url`.

    Attributes:
        state, points, decisions, alarms: What is served; edit them before or while it runs.
        raw: Path -> (status, body) to answer instead, for errors.
    """

    def __init__(self) -> None:
        state = recorded("state")
        shift = time.time() - state["time"]
        self.state: dict[str, Any] = moved(state, shift)
        self.points: list[dict[str, Any]] = moved(recorded("series")["points"], shift)
        self.decisions: list[dict[str, Any]] = moved(recorded("decisions")["decisions"], shift)
        self.alarms: list[dict[str, Any]] = moved(recorded("alarms")["alarms"], shift)
        self.explanations: dict[str, Any] = moved(recorded("explain"), shift)
        self.raw: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.fresh = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeApi:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def empty(self) -> None:
        """Be a service that has met its engine and stored nothing."""
        self.points, self.decisions, self.alarms = [], [], []
        self.state.update(classes=[], last_decision=None, engine_state="first", benefit=None)
        for key in ("blended_acceptance", "break_even_acceptance", "running", "tokens_per_second"):
            self.state[key] = None
        self.state["cost"] = {**self.state["cost"], "dollars_per_million_tokens": None}
        self.state["cost"]["dollars_per_hour_gained"] = None

    def up_to(self, seconds: float) -> None:
        """Cut the story `seconds` before its end, and make that moment now."""
        end = self.points[-1]["time"] - seconds
        for name in ("points", "decisions", "alarms"):
            kept = [row for row in getattr(self, name) if row["time"] <= end]
            setattr(self, name, moved(kept, seconds))

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """Return status and document of one request."""
        limit = int(query.get("limit", ["1000"])[0])
        if path == "state":
            state = copy.deepcopy(self.state)
            if self.fresh:
                state["time"] = time.time()
            return 200, state
        if path == "series":
            since = float(query.get("since", ["0"])[0])
            return 200, {"points": [p for p in self.points if p["time"] > since][-limit:]}
        if path in ("decisions", "alarms"):
            return 200, {path: getattr(self, path)[:limit]}
        if path.startswith("explain/") and path[8:] in self.explanations:
            return 200, self.explanations[path[8:]]
        return 404, {"error": "there is no such thing"}

    def _handler(fake) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                path = parts.path.removeprefix("/api/v1/")
                fake.asked.append(self.path)
                if path in fake.raw:
                    status, body = fake.raw[path]
                else:
                    status, document = fake.answer(path, parse_qs(parts.query))
                    body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        return Handler
