"""A small real HTTP server for tests, answering with what a function returns."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = "text/plain; version=1.0.0; charset=utf-8"


@dataclass
class Answer:
    """One answer. Without a length the connection is closed at the end of the body."""

    body: str | bytes | Iterable[bytes] = ""
    status: int = 200
    content_type: str = TEXT
    headers: dict[str, str] = field(default_factory=dict)
    claimed_length: int | None = None


@contextlib.contextmanager
def serve(answer: Callable[[str], Answer]) -> Iterator[str]:
    """Serve on a free port of the loopback until the block ends; gives the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            given = answer(self.path)
            body = given.body.encode() if isinstance(given.body, str) else given.body
            self.send_response(given.status)
            self.send_header("Content-Type", given.content_type)
            for name, value in given.headers.items():
                self.send_header(name, value)
            if isinstance(body, bytes):
                length = len(body) if given.claimed_length is None else given.claimed_length
                self.send_header("Content-Length", str(length))
                self.close_connection = length != len(body)
                body = (body,)
            else:
                self.close_connection = True
                self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(OSError):
                for chunk in body:
                    self.wfile.write(chunk)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that leaves early is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def free_port() -> int:
    """Return a port of the loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
