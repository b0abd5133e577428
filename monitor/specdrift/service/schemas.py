"""JSON Schemas of what specdrift stores, reads and serves; committed in schemas/."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter

from specdrift.config import Policy
from specdrift.core.detector import ChartState, Signal
from specdrift.core.loop import Decision
from specdrift.core.windows import Window
from specdrift.service.api import openapi_document
from specdrift.service.checkpoint import version_of

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
# A histogram's last bound is infinite, which JSON cannot say as a number.
_INFINITE: Final = {"anyOf": [{"type": "number"}, {"const": "Infinity"}]}

Schema = dict[str, Any]


def stored_schema(kind: type, title: str) -> Schema:
    """Return the schema of the texts that `checkpoint.dump` makes of this type."""
    data = TypeAdapter(kind).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    definitions = data.pop("$defs", {})
    if "Histogram" in definitions:
        definitions["Histogram"]["properties"]["bounds"]["items"] = _INFINITE
    about = _first_paragraph(data.pop("description", ""))
    data.pop("title", None)
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = _first_paragraph(definition["description"])
    return {
        "$schema": DRAFT,
        "title": title,
        "description": about,
        "type": "object",
        "additionalProperties": False,
        "required": ["version", "type", "data"],
        "properties": {
            "version": {"const": version_of(kind), "description": "Version of this shape"},
            "type": {"const": kind.__name__},
            "data": data,
        },
        "$defs": definitions,
    }


def _first_paragraph(text: str) -> str:
    """Return a docstring without its list of attributes, on one line."""
    return " ".join(text.partition("\n\n")[0].split())


def policy_schema() -> Schema:
    """Return the schema of a policy file."""
    schema = Policy.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": DRAFT, **schema, "title": "specdrift policy"}


def documents() -> dict[str, Schema]:
    """Return file name -> document, all but the simulator's (only the command line knows it)."""
    return {
        "window.json": stored_schema(Window, "specdrift window"),
        "signal.json": stored_schema(Signal, "specdrift signal"),
        "decision.json": stored_schema(Decision, "specdrift decision"),
        "detector-state.json": stored_schema(ChartState, "specdrift detector state"),
        "policy.json": policy_schema(),
        "openapi.json": openapi_document(),
    }
