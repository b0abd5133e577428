"""The write routes: what a person sets over the policy. They exist only where a token is set."""

from __future__ import annotations

import hmac
import threading

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, ValidationError

from specdrift.core.policy import Mode
from specdrift.errors import StoreError
from specdrift.service.ports import Store
from specdrift.service.views import DOCUMENT_OVERRIDE, OverrideView, Problem

# Only describes the scheme in the OpenAPI document; `_allowed` does the checking.
_SCHEME = HTTPBearer(auto_error=False, description="The token specdrift was started with")


class ModeRequest(BaseModel):
    """The mode to put over the policy's own; null gives the policy's back."""

    model_config = ConfigDict(extra="forbid")

    mode: Mode | None


def write_routes(store: Store, token: str) -> APIRouter:
    """Return the write routes, all behind the token."""
    expected = token.encode()

    def allowed(request: Request) -> None:
        given = request.headers.get("authorization", "")
        scheme, _, secret = given.partition(" ")
        # Headers arrive as latin-1: back to the bytes that were sent. Compared in constant time.
        same = hmac.compare_digest(secret.strip().encode("latin-1"), expected)
        if scheme.lower() != "bearer" or not same:
            raise HTTPException(
                401,
                "the token is missing or wrong; send Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )

    router = APIRouter(
        dependencies=[Depends(allowed), Depends(_SCHEME)], responses={401: {"model": Problem}}
    )
    turn = threading.Lock()

    def change(**values: object) -> OverrideView:
        with turn:
            new = _present(store).model_copy(update=values)
            store.put_document(DOCUMENT_OVERRIDE, new.model_dump_json())
            return new

    @router.post("/mode")
    def mode(asked: ModeRequest) -> OverrideView:
        """Set the mode over the policy's own, from the next tick on."""
        return change(mode=asked.mode)

    @router.post("/pause")
    def pause() -> OverrideView:
        """Make no changes until resumed; watching goes on."""
        return change(paused=True)

    @router.post("/resume")
    def resume() -> OverrideView:
        """End the pause."""
        return change(paused=False)

    return router


def _present(store: Store) -> OverrideView:
    text = store.document(DOCUMENT_OVERRIDE)
    if text is None:
        return OverrideView()
    try:
        return OverrideView.model_validate_json(text)
    except ValidationError as error:
        raise StoreError(
            "the stored override is damaged and nothing was changed",
            where=DOCUMENT_OVERRIDE,
            why=str(error.errors(include_url=False, include_input=False)[0]["msg"]),
        ) from error
