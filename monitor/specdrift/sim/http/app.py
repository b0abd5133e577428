"""vLLM's HTTP surface over a simulated engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from specdrift.conventions import CLASS_DEFAULT, HEADER_TRAFFIC_CLASS
from specdrift.sim.engine import SimulatedEngine
from specdrift.sim.exposition import CONTENT_TYPE
from specdrift.sim.http import openai
from specdrift.sim.http.counters import HttpCounters, process_lines
from specdrift.sim.http.openai import ApiError, Asked, Progress
from specdrift.sim.traffic import RequestSpec, Sink, TokenEvent

_IDLE_TICK_SECONDS = 0.05
_BUSY_TICK_SECONDS = 0.005
_CLASS_CHARACTERS = 64
_RESTARTED = "the simulated engine restarted"


@dataclass
class Frontend:
    """The engine, its clock and what the server was asked to report.

    Args:
        engine: The engine; its epoch says when scenario time is zero.
        per_request_speculation: `none`, `summary` or `detailed`.
        per_request_metrics: Whether answers carry latencies.
        force_include_usage: Whether every stream ends with usage.
        clock: Unix time in seconds.
    """

    engine: SimulatedEngine
    per_request_speculation: str = "none"
    per_request_metrics: bool = False
    force_include_usage: bool = False
    clock: Callable[[], float] = time.time

    @property
    def version(self) -> str:
        """Return the version the engine states: it says that it is simulated."""
        return f"{self.engine.version}+simulated"

    def catch_up(self) -> None:
        """Run the engine up to the present."""
        scale = self.engine.resolved.scenario.time_scale
        self.engine.advance((self.clock() - self.engine.epoch) * scale)

    async def drive(self) -> None:
        """Keep the engine at the present until cancelled."""
        while True:
            self.catch_up()
            tick = _BUSY_TICK_SECONDS if self.engine.has_listeners else _IDLE_TICK_SECONDS
            await asyncio.sleep(tick)

    def metrics(self, answers: list[Progress]) -> dict[str, Any] | None:
        """Return the `metrics` of an answer; None for several choices or when not asked for."""
        wanted = self.per_request_speculation != "none"
        if len(answers) != 1 or not (wanted or self.per_request_metrics):
            return None
        timing = openai.timing_metrics(answers[0])
        body = timing if self.per_request_metrics else dict.fromkeys(timing)
        body["speculative_decoding"] = None
        k = self.engine.num_speculative_tokens
        if wanted and k:
            detailed = self.per_request_speculation == "detailed"
            body["speculative_decoding"] = openai.speculation_metrics(answers[0], k, detailed)
        return body


def build_app(frontend: Frontend) -> tuple[FastAPI, HttpCounters]:
    """Return the application and the middleware around it, which is what a server runs."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, title="simulated vLLM")
    counters = HttpCounters(app)

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return JSONResponse(error.body(), status_code=error.status)

    app.add_exception_handler(ApiError, refuse)

    def serving() -> SimulatedEngine:
        frontend.catch_up()
        if not frontend.engine.up:
            raise ApiError(503, "the simulated engine is restarting")
        return frontend.engine

    @app.get("/health")
    async def health() -> Response:
        serving()
        return Response()

    @app.get("/version")
    async def version() -> Response:
        serving()
        return JSONResponse({"version": frontend.version})

    @app.get("/metrics")
    async def metrics() -> Response:
        own = [*process_lines(), ""]
        page = "\n".join(own) + serving().exposition() + "\n".join([*counters.lines(), ""])
        return Response(page, headers={"content-type": CONTENT_TYPE})

    @app.get("/v1/models")
    async def models() -> Response:
        engine = serving()
        model = {
            "id": engine.model_name,
            "object": "model",
            "created": int(engine.wall(engine.started_at)),
            "owned_by": "specdrift-simulated",
            "root": engine.resolved.engine.model,
            "parent": None,
            "max_model_len": engine.resolved.engine.max_model_len,
        }
        return JSONResponse({"object": "list", "data": [model]})

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        serving()
        return await _answer(frontend, request, chat=True)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        serving()
        return await _answer(frontend, request, chat=False)

    return app, counters


class _Running:
    """The answers of one HTTP request while the engine works on them."""

    def __init__(self, frontend: Frontend, asked: Asked, traffic_class: str) -> None:
        self._frontend = frontend
        self.answers = [Progress() for _ in range(asked.choices)]
        self._events: asyncio.Queue[tuple[int, TokenEvent]] = asyncio.Queue()
        self._open = asked.choices
        for index, answer in enumerate(self.answers):
            spec = RequestSpec(
                traffic_class=traffic_class,
                prompt_tokens=asked.prompt_tokens[index // asked.n],
                max_tokens=asked.max_tokens,
                ignore_eos=asked.ignore_eos,
                sink=self._listener(index),
            )
            answer.request = frontend.engine.submit(spec)

    def _listener(self, index: int) -> Sink:
        def listen(event: TokenEvent) -> None:
            self._events.put_nowait((index, event))

        return listen

    async def steps(self) -> AsyncGenerator[tuple[int, TokenEvent, str], None]:
        """Yield (choice, event, text) until every answer has ended; aborts what is left open."""
        try:
            while self._open:
                index, event = await self._events.get()
                text = self.answers[index].add(event)
                self._open -= event.finished_reason is not None
                yield index, event, text
        finally:
            for answer in self.answers:
                if answer.finished_reason is None and answer.request is not None:
                    self._frontend.engine.abort(answer.request)


async def _answer(frontend: Frontend, request: Request, *, chat: bool) -> Response:
    engine = frontend.engine
    asked = openai.parse_request(
        await request.body(),
        chat=chat,
        model=engine.model_name,
        max_model_len=engine.resolved.engine.max_model_len,
    )
    name = request.headers.get(HEADER_TRAFFIC_CLASS, "").strip()[:_CLASS_CHARACTERS]
    identity = {
        "id": openai.request_id(chat, request.headers.get("x-request-id")),
        "created": int(frontend.clock()),
        "model": engine.model_name,
    }
    running = _Running(frontend, asked, name or CLASS_DEFAULT)
    if asked.stream:
        return StreamingResponse(
            _stream(frontend, asked, running, identity), media_type="text/event-stream"
        )
    texts = [""] * asked.choices
    async with aclosing(running.steps()) as steps:
        async for index, event, text in steps:
            texts[index] += text
            if event.finished_reason == "error":
                raise ApiError(503, _RESTARTED)
    body = openai.answer_body(
        asked,
        running.answers,
        texts,
        identity=identity,
        version=engine.version,
        metrics=frontend.metrics(running.answers),
    )
    return JSONResponse(body)


async def _stream(
    frontend: Frontend, asked: Asked, running: _Running, identity: dict[str, Any]
) -> AsyncIterator[str]:
    """Yield server-sent events: one chunk per engine step and answer, then usage, then DONE."""
    engine = frontend.engine
    fingerprint = openai.FINGERPRINT.format(version=engine.version)
    include_usage = asked.include_usage or frontend.force_include_usage
    if asked.chat:
        for index in range(asked.choices):
            first = openai.chunk_body(True, identity, index, "", None)
            first["choices"][0]["delta"] = {"role": "assistant", "content": ""}
            yield _event(first)
    left = asked.choices
    async with aclosing(running.steps()) as steps:
        async for index, event, text in steps:
            if event.finished_reason == "error":
                yield _event(ApiError(503, _RESTARTED).body())
                return
            chunk = openai.chunk_body(asked.chat, identity, index, text, event.finished_reason)
            left -= event.finished_reason is not None
            if not left and not include_usage:
                chunk["system_fingerprint"] = fingerprint
            yield _event(chunk)
    if include_usage:
        last = openai.chunk_body(asked.chat, identity, 0, "", None)
        last |= {
            "choices": [],
            "usage": openai.usage(asked, running.answers),
            "system_fingerprint": fingerprint,
        }
        metrics = frontend.metrics(running.answers)
        if metrics is not None:
            last["metrics"] = _without_none(metrics)
        yield _event(last)
    yield "data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n"


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in body.items()
        if value is not None
    }
