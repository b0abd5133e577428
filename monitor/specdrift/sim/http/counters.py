"""The http_*, python_ and process_ families that vLLM's server adds to the page."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from specdrift.sim.statistics import Histogram
from specdrift.sim.text import go_float, header, histogram_lines, label_text

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HIGH_RESOLUTION_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
)  # fmt: skip
COARSE_BOUNDS = (0.1, 0.5, 1.0)
_NOT_COUNTED = frozenset({"/metrics", "/health", "/version", "/load", "/ping"})
_COUNTED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/models"})


class HttpCounters:
    """ASGI middleware that counts requests as vLLM's instrumentation does.

    Args:
        app: The application it wraps.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.reset()

    def reset(self) -> None:
        """Start at zero: the engine restarted."""
        self._created = time.time()
        self._requests: dict[tuple[str, str, str], int] = {}
        self._sizes: dict[tuple[str, str], tuple[int, int]] = {}
        self._overall = Histogram(HIGH_RESOLUTION_BOUNDS)
        self._by_handler: dict[tuple[str, str], Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and count it."""
        if scope["type"] != "http" or scope["path"] in _NOT_COUNTED:
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status, sent = 500, 0

        async def counting(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            received = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
            size = int(received) if received.isdigit() else 0
            self._count(scope, status, size, sent, time.monotonic() - started)

    def _count(self, scope: Scope, status: int, received: int, sent: int, seconds: float) -> None:
        handler = scope["path"] if scope["path"] in _COUNTED else "none"
        method = scope["method"]
        key = (handler, method, f"{status // 100}xx")
        self._requests[key] = self._requests.get(key, 0) + 1
        for direction, size in (("request", received), ("response", sent)):
            count, total = self._sizes.get((direction, handler), (0, 0))
            self._sizes[(direction, handler)] = (count + 1, total + size)
        self._overall.observe(seconds)
        self._by_handler.setdefault((handler, method), Histogram(COARSE_BOUNDS)).observe(seconds)

    def lines(self) -> list[str]:
        """Return the http_* lines of the page."""
        text = "Total number of requests by method, status and handler."
        lines = header("http_requests_total", "counter", text)
        for (handler, method, status), count in self._requests.items():
            labels = label_text({"handler": handler, "method": method, "status": status})
            lines.append(f"http_requests_total{{{labels}}} {go_float(count)}")
        for direction, text in (
            ("request", "Content length of incoming requests by handler."),
            ("response", "Content length of outgoing responses by handler."),
        ):
            name = f"http_{direction}_size_bytes"
            lines += header(name, "summary", text)
            for (way, handler), (count, total) in self._sizes.items():
                if way == direction:
                    labels = label_text({"handler": handler})
                    lines.append(f"{name}_count{{{labels}}} {go_float(count)}")
                    lines.append(f"{name}_sum{{{labels}}} {go_float(total)}")
        name = "http_request_duration_highr_seconds"
        text = "Latency with many buckets but no API specific labels."
        lines += header(name, "histogram", text)
        lines += histogram_lines(name, {}, self._overall)
        lines += header(f"{name}_created", "gauge", text)
        lines.append(f"{name}_created {go_float(self._created)}")
        name = "http_request_duration_seconds"
        lines += header(name, "histogram", "Latency with only few buckets by handler.")
        for (handler, method), histogram in self._by_handler.items():
            lines += histogram_lines(name, {"handler": handler, "method": method}, histogram)
        return lines


def process_lines() -> list[str]:
    """Return python_info and the process's own CPU seconds."""
    version = platform.python_version()
    major, minor, patch = (*version.split("."), "0")[:3]
    labels = {
        "implementation": sys.implementation.name,
        "major": major,
        "minor": minor,
        "patchlevel": patch,
        "version": version,
    }
    return [
        *header("python_info", "gauge", "Python platform information"),
        f"python_info{{{label_text(labels)}}} 1.0",
        *header(
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
        ),
        f"process_cpu_seconds_total {go_float(time.process_time())}",
    ]
