"""Frozen dataclasses of the core <-> JSON text, exactly.

Every text is an envelope: {"version": 1, "type": "PipelineState", "data": {...}}. Floats survive
bit for bit; an infinite one (the last bound of a histogram) is written as "Infinity", because
JSON has no such number. What cannot be read gives one sentence that says what is lost and what
happens next; the caller goes on with a fresh state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from specdrift.core.detector import STATE_VERSION
from specdrift.core.loop import LoopState
from specdrift.core.policy import Facts, Rules
from specdrift.errors import StoreError

T = TypeVar("T")

DEFAULT_VERSION: Final = 1
# Raise a type's number when an older text would load but mean something else, or not load. Types
# go by name, so that what the shell keeps for itself can have an entry too.
VERSIONS: Final[Mapping[str, int]] = {"PipelineState": STATE_VERSION, "ChartState": STATE_VERSION}

_NO_MATTER: Final = ("it", "specdrift goes on without it")
_INPUTS_LOST: Final = ("the inputs of this decision", "it cannot be explained; others can")
# Type -> (what is lost when it cannot be read, what happens then).
_LOST: Final[Mapping[str, tuple[str, str]]] = {
    "Memory": (
        "the learned baselines, standing alarms and what was tried",
        "specdrift starts learning anew",
    ),
    "PipelineState": (
        "the learned baselines, standing alarms and step times",
        "specdrift starts learning anew",
    ),
    "ChartState": ("the learned baseline of one class", "specdrift starts learning anew"),
    "LoopState": (
        "what specdrift had in force and what it tried",
        "specdrift starts anew from the configuration it finds running",
    ),
    "AlarmRecord": ("this alarm", "it cannot be shown; others can"),
    "Decision": ("this decision", "it cannot be shown; others can"),
    "Inputs": _INPUTS_LOST,
}


class Envelope(BaseModel, Generic[T]):
    """A value with the version of its shape, as stored."""

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True)

    version: int
    type: str
    data: T


@lru_cache(maxsize=64)
def _envelope(kind: Any) -> type[Envelope[Any]]:
    return Envelope[kind]


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def version_of(kind: Any) -> int:
    """Return the version that texts of this type carry now."""
    return VERSIONS.get(_name(kind), DEFAULT_VERSION)


def dump(value: object, kind: Any = None) -> str:
    """Return the JSON text of a value of the core.

    Args:
        value: A frozen dataclass, or with `kind` given any value of that type.
        kind: The type, where it is no class of its own: `dict[str, Snapshot]`.
    """
    kind = type(value) if kind is None else kind
    wrapped = _envelope(kind).model_construct(
        version=version_of(kind), type=_name(kind), data=value
    )
    return wrapped.model_dump_json()


def load(kind: type[T], text: str, *, where: str = "") -> T:
    """Return the value that `dump` made this text of.

    Raises:
        StoreError: The text is of another version, of another type, or damaged; the sentence says
            what is lost and what happens next.
    """
    try:
        read = _envelope(cast("Any", kind)).model_validate_json(text)
    except ValidationError as error:
        raise _unreadable(_name(kind), _peek(text), where, _first(error)) from error
    if read.version != version_of(kind) or read.type != _name(kind):
        raise _unreadable(_name(kind), read.version, where, f"it holds a {read.type}")
    return cast("T", read.data)


def dump_inputs(loop: LoopState, facts: Facts, rules: Rules) -> str:
    """Return the text of all that a decision was made from, for `load_inputs`."""
    # Texts are put together, not parsed and dumped again: not a digit may change.
    return f'{{"loop":{dump(loop)},"facts":{dump(facts)},"rules":{dump(rules)}}}'


class _Inputs(BaseModel):
    model_config = ConfigDict(frozen=True)

    loop: Envelope[LoopState]
    facts: Envelope[Facts]
    rules: Envelope[Rules]


def load_inputs(text: str, *, where: str = "") -> tuple[LoopState, Facts, Rules]:
    """Return the (loop, facts, rules) that a decision was made from.

    Raises:
        StoreError: They are of another version, or damaged.
    """
    try:
        read = _Inputs.model_validate_json(text)
    except ValidationError as error:
        raise _unreadable("Inputs", _peek(text, "loop"), where, _first(error)) from error
    found = {LoopState: read.loop.version, Facts: read.facts.version, Rules: read.rules.version}
    for kind, version in found.items():
        if version != version_of(kind):
            raise _unreadable("Inputs", version, where, f"the {_name(kind)} is another")
    return read.loop.data, read.facts.data, read.rules.data


def load_plain(text: str, *, where: str = "") -> dict[str, Any]:
    """Return a document that is a plain JSON object.

    Raises:
        StoreError: It is none.
    """
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable("document", None, where, str(error)) from error
    if not isinstance(read, dict):
        raise _unreadable("document", None, where, "it is not a JSON object")
    return read


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{first['msg']} at {place}" if place else str(first["msg"])


def _peek(text: str, part: str | None = None) -> object:
    """Return the version that a text claims to be of, whatever else is wrong with it."""
    try:
        head = json.loads(text)
        return (head[part] if part else head)["version"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None


def _unreadable(name: str, version: object, where: str, why: str) -> StoreError:
    lost, then = _LOST.get(name, _NO_MATTER)
    known = VERSIONS.get(name, DEFAULT_VERSION)
    what = "a stored record is damaged"
    if isinstance(version, int) and version != known:
        what = "a stored record is of another version"
        why = f"its version is {version}, this specdrift reads {known}"
    return StoreError(f"{what}: {lost} cannot be used, {then}", where=where or name, why=why)
