"""What every request passes before a route sees it: its host name and the size of its body."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

MOST_BODY_BYTES: Final = 16_384


class Guard:
    """ASGI middleware.

    A page of some other site can make a browser connect to a loopback port under the site's own
    name (DNS rebinding), but not under ours: the Host header tells.

    Args:
        allowed_hosts: Host names without port, lower case, IPv6 without brackets; None: any.
    """

    def __init__(
        self,
        app: App,
        *,
        allowed_hosts: Collection[str] | None,
        most_body_bytes: int = MOST_BODY_BYTES,
    ) -> None:
        self._app = app
        self._hosts = allowed_hosts
        self._most = most_body_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there are no web sockets here
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.decode("latin-1") for key, value in headers if key == b"host"]
        if self._hosts is not None and (len(hosts) != 1 or host_name(hosts[0]) not in self._hosts):
            text = "this address answers to loopback names only; use 127.0.0.1 or localhost"
            await _refuse(send, 400, text)
            return
        body = await self._body(receive)
        if body is None:
            await _refuse(send, 413, f"the body is larger than {self._most} bytes")
            return
        await self._app(scope, _replay(body, receive), send)

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the whole body, None when it is too large."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message["type"] == "http.request" and message.get("more_body", False)
            if len(body) > self._most:
                return None
        return bytes(body)


def host_name(header: str) -> str:
    """Return the name in a Host header: no port, no brackets, lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
