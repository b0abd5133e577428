"""The HTTP API: what the loop knows, read-only unless a token is set.

Listens on loopback by default and answers only to loopback names there (DNS rebinding). Write
routes do not exist without a token; with one they set what stands over the policy.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, FastAPI, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from specdrift import __version__
from specdrift.core.loop import Decision
from specdrift.core.pipeline import AlarmRecord
from specdrift.errors import StoreError
from specdrift.service import checkpoint
from specdrift.service.api.guard import Guard
from specdrift.service.api.writing import write_routes
from specdrift.service.explain import explain
from specdrift.service.metrics import StateCollector, exposition
from specdrift.service.ports import Store
from specdrift.service.views import (
    DOCUMENT_STATE,
    AlarmView,
    DecisionView,
    ExplanationView,
    PointView,
    Problem,
    StateView,
    View,
)

STALE_INTERVALS: Final = 5
MOST_POINTS: Final = 20_000
MOST_RECORDS: Final = 1000
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})

Newest = Annotated[int, Query(ge=1, le=MOST_RECORDS, description="So many of the newest")]
Points = Annotated[int, Query(ge=1, le=MOST_POINTS, description="So many of the newest")]
Since = Annotated[float, Query(description="Unix time; newer points only", allow_inf_nan=False)]
Number = Annotated[int, Path(description="A decision's id")]


class Health(View):
    """The process answers."""

    status: str
    version: str


class Ready(View):
    """Whether the loop runs: `age_seconds` since its last tick."""

    ready: bool
    reason: str
    age_seconds: float | None = None


class Series(View):
    """Points of the time series, oldest first."""

    points: list[PointView]


class Decisions(View):
    """Decisions, newest first."""

    decisions: list[DecisionView]


class Alarms(View):
    """Alarms, newest first."""

    alarms: list[AlarmView]


def create_app(
    store: Store,
    state_provider: Callable[[], str | None] | None = None,
    *,
    token: str | None = None,
    allowed_hosts: Collection[str] | None = LOOPBACK_HOSTS,
    now: Callable[[], float] = time.time,
) -> FastAPI:
    """Return the application.

    Args:
        store: Where the loop records; read from many threads.
        state_provider: Returns the newest state document; by default the store's.
        token: Bearer token of the write routes; without one (or an empty one) there are none.
        allowed_hosts: Host names a request may ask for; None: any.
        now: Unix time, for the age of the last tick.
    """
    desk = _Desk(store, state_provider or (lambda: store.document(DOCUMENT_STATE)), now)
    app = FastAPI(
        title="specdrift",
        version=__version__,
        description="Speculative decoding of one workload: what drifted, why, what was done.",
        docs_url=None,  # both pages load scripts from elsewhere
        redoc_url=None,
        responses={code: {"model": Problem} for code in (400, 422, 503)},
    )
    app.add_middleware(Guard, allowed_hosts=allowed_hosts)
    app.add_exception_handler(StoreError, _store_failed)
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.include_router(_pages(desk))
    app.include_router(_reading(desk), prefix="/api/v1", tags=["read"])
    if token:
        app.include_router(write_routes(store, token), prefix="/api/v1", tags=["write"])
    return app


class _Desk:
    """What the routes share: the newest state, read and checked."""

    def __init__(
        self, store: Store, provider: Callable[[], str | None], now: Callable[[], float]
    ) -> None:
        self.store = store
        self._provider = provider
        self._now = now
        self._last: tuple[str, StateView] | None = None

    def state(self) -> StateView | None:
        """Return the newest state document; None before there is one that can be read."""
        text = self._provider()
        if text is None:
            return None
        last = self._last
        if last is None or last[0] != text:
            try:
                last = (text, StateView.model_validate_json(text))
            except ValidationError:  # of another version; the next tick replaces it
                return None
            self._last = last
        return last[1]

    def actions(self) -> list[tuple[str, str | None, int]]:
        return self.store.decision_kinds()

    def age(self, state: StateView) -> float:
        return self._now() - state.time

    def fresh(self, state: StateView) -> bool:
        return self.age(state) <= STALE_INTERVALS * state.scrape_interval

    def ready(self) -> Ready:
        state = self.state()
        if state is None:
            return Ready(ready=False, reason="no tick has completed yet")
        age = self.age(state)
        if self.fresh(state):
            return Ready(ready=True, reason="the loop runs", age_seconds=age)
        reason = f"the last tick is older than {STALE_INTERVALS} scrape intervals"
        return Ready(ready=False, reason=reason, age_seconds=age)


async def _store_failed(_request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=503)


async def _refused(_request: Request, error: Exception) -> Response:
    refusal = cast("StarletteHTTPException", error)
    return JSONResponse(
        {"error": refusal.detail}, status_code=refusal.status_code, headers=refusal.headers
    )


async def _not_valid(_request: Request, error: Exception) -> Response:
    first = cast("RequestValidationError", error).errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"error": f"{place}: {first['msg']}"}, status_code=422)


def openapi_document() -> dict[str, Any]:
    """Return the description of the API, write routes included."""
    nothing = cast("Store", None)  # described, never asked
    return create_app(nothing, token="described").openapi()


# --- reading ----------------------------------------------------------------------------------


def _pages(desk: _Desk) -> APIRouter:
    router = APIRouter()
    collector = StateCollector(desk.state, desk.actions, desk.fresh)

    @router.get("/", response_class=HTMLResponse, include_in_schema=False)
    def landing() -> str:
        return _landing(desk.state())

    @router.get("/healthz", tags=["health"])
    def healthz() -> Health:
        """Answer as long as the process lives."""
        return Health(status="ok", version=__version__)

    @router.get("/readyz", tags=["health"], responses={503: {"model": Ready}})
    def readyz(response: Response) -> Ready:
        """Answer 200 while the loop runs, 503 before its first tick and when it stands still."""
        ready = desk.ready()
        response.status_code = 200 if ready.ready else 503
        return ready

    @router.get(
        "/metrics",
        tags=["health"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus exposition"}},
    )
    def metrics() -> Response:
        """Return the controller's own state for Prometheus."""
        return Response(exposition(collector), media_type="text/plain; version=0.0.4")

    return router


def _landing(state: StateView | None) -> str:
    simulated = " (simulated engine)" if state is not None and state.simulated else ""
    about = "no tick has completed yet"
    if state is not None:
        about = f"{state.workload}: mode {state.mode.value}, {state.rung} in force"
    links = "".join(
        f'<li><a href="{path}">{path}</a> {text}</li>'
        for path, text in (
            ("/api/v1/state", "everything about the workload now"),
            ("/api/v1/series", "the time series"),
            ("/api/v1/decisions", "what was decided and why"),
            ("/api/v1/alarms", "what drifted"),
            ("/metrics", "for Prometheus"),
            ("/healthz", "the process lives"),
            ("/readyz", "the loop runs"),
            ("/openapi.json", "description of this API"),
        )
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>specdrift</title>'
        f"<h1>specdrift {__version__}</h1><p>{html.escape(about)}{simulated}</p>"
        f"<ul>{links}</ul></html>"
    )


def _reading(desk: _Desk) -> APIRouter:
    router = APIRouter()
    store = desk.store

    @router.get("/state")
    def state() -> StateView:
        """Return everything about the workload now."""
        found = desk.state()
        if found is None:
            raise StoreError("there is no state to show yet", why="no tick has completed")
        return found

    @router.get("/series", response_model=Series)
    def series(since: Since = 0.0, limit: Points = 1000) -> Response:
        """Return the newest points, oldest first."""
        # As the loop wrote them: a page that asks every second should cost next to nothing.
        body = ",".join(store.points(since, limit))
        return Response(f'{{"points":[{body}]}}', media_type="application/json")

    @router.get("/decisions")
    def decisions(limit: Newest = 50) -> Decisions:
        """Return decisions, newest first; one that cannot be read is left out."""
        views = []
        for number, stored in store.decisions(limit):
            with suppress(StoreError):
                read = checkpoint.load(Decision, stored.decision)
                views.append(DecisionView.of(number, read))
        return Decisions(decisions=views)

    @router.get("/alarms")
    def alarms(limit: Newest = 50) -> Alarms:
        """Return alarms, newest first; one that cannot be read is left out."""
        views = []
        for number, text in store.alarms(limit):
            with suppress(StoreError):
                views.append(AlarmView.of(number, checkpoint.load(AlarmRecord, text)))
        return Alarms(alarms=views)

    @router.get("/explain/{number}", responses={404: {"model": Problem}})
    def explain_one(number: Number) -> ExplanationView:
        """Run a decision again from its stored inputs."""
        stored = store.decision(number)
        if stored is None:
            raise HTTPException(404, f"there is no decision {number}")
        found = explain(stored, where=f"decision {number}")
        return ExplanationView.of(number, found)

    return router
