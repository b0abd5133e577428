"""Serve the API from a thread of its own, beside the loop."""

from __future__ import annotations

import errno
import socket
import threading
import time
from types import TracebackType
from typing import Any, Final

import uvicorn

from specdrift import conventions as names
from specdrift.errors import SpecdriftError

START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 5.0
MOST_CONNECTIONS: Final = 200


class ApiServer:
    """A server for one application; also a context manager.

    Args:
        app: What `create_app` returned.
        host: Address to listen on.
        port: Port; 0 takes a free one, see `port`.

    Raises:
        SpecdriftError: The port is taken, or the address is not this machine's.
    """

    def __init__(self, app: Any, *, host: str = names.LOOPBACK, port: int = names.PORT_API) -> None:
        self.host = host
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="specdrift-api", daemon=True)

    @property
    def url(self) -> str:
        """Return the address to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        host = {"0.0.0.0": names.LOOPBACK, "[::]": "[::1]"}.get(host, host)
        return f"http://{host}:{self.port}"

    def start(self) -> ApiServer:
        """Serve; returns once requests are answered.

        Raises:
            SpecdriftError: The server did not come up.
        """
        self._thread.start()
        end = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                self.stop()
                raise SpecdriftError("the API did not start", where=self.url)
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        """Stop serving and give the port back. Stopping twice is fine."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                self._server.force_exit = True
                self._thread.join(STOP_SECONDS)
        self._socket.close()

    def __enter__(self) -> ApiServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def _listen(host: str, port: int) -> socket.socket:
    where = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.create_server(address[:2], family=family, backlog=128)
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why, hint = str(getattr(error, "strerror", None) or error), "another --host or --port"
        if number == errno.EADDRINUSE:
            why, hint = "the port is taken", "another --port (0 takes any free one)"
        elif number == errno.EACCES:
            why, hint = "this port needs more rights", "a --port above 1023"
        raise SpecdriftError("cannot serve the API", where=where, why=why, hint=hint) from error
    listening.setblocking(False)
    return listening
