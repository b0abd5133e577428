"""What `specdrift watch --json` prints: JSON objects out of views. Pure.

Numbers are unrounded, ratios go from 0 to 1, and what is not known is null or a named state.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from specdrift.core.summary import EngineState, EngineSummary, SpecSummary, break_even

if TYPE_CHECKING:
    from specdrift.adapters.prometheus import WorkloadRow
    from specdrift.cli.watch_targets import TargetView


def target_json(view: TargetView, reference: float | None = None) -> dict[str, Any]:
    """Return one address as JSON; numbers unrounded, ratios 0 to 1, unknown is null."""
    body: dict[str, Any] = {"url": view.url, "state": view.state}
    if view.error is not None:
        body["error"] = view.error
    first = view.engines[0] if view.engines else None
    body |= {
        "engine": first.engine_kind if first else None,
        "version": view.version,
        "model_name": view.total.model_name if view.total else None,
        "acceptance": _since_acceptance(view.total),
    }
    body |= _engine_numbers(view.total, reference)
    body["data_age_seconds"] = view.age_seconds
    body["engines"] = [
        {
            "model_name": engine.model_name,
            "engine_index": engine.engine,
            "state": engine.state.value,
            "acceptance": _since_acceptance(engine),
            **_engine_numbers(engine, reference),
        }
        for engine in view.engines
    ]
    return body


def _since_acceptance(engine: EngineSummary | None) -> float | None:
    return engine.since_start.acceptance if engine and engine.since_start else None


def _engine_numbers(engine: EngineSummary | None, reference: float | None) -> dict[str, Any]:
    if engine is None:
        return {
            "method": None,
            "num_speculative_tokens": None,
            "since_start": None,
            "window": None,
            "break_even": None,
            "classes": {},
            "missing": [],
        }
    since = asdict(engine.since_start or SpecSummary())
    since["generation_tokens"] = engine.generation_tokens
    return {
        "method": engine.method,
        "num_speculative_tokens": engine.num_speculative_tokens,
        "since_start": since,
        "window": _window_json(engine),
        "break_even": asdict(break_even(engine, reference)),
        "classes": {
            each.traffic_class: {
                "acceptance": each.since_start.acceptance,
                "since_start": asdict(each.since_start),
                "window": asdict(each.window) if each.window else EngineState.NO_TRAFFIC.value,
            }
            for each in engine.classes
        },
        "missing": list(engine.missing),
    }


def _window_json(engine: EngineSummary) -> dict[str, Any] | str | None:
    window = engine.window
    if window is None:
        return None
    if engine.state is EngineState.NO_TRAFFIC or (
        engine.state is EngineState.SPECULATION_OFF and window.generation_tokens == 0
    ):
        return EngineState.NO_TRAFFIC.value
    body = asdict(window)
    return {"seconds": body.pop("seconds"), **body.pop("spec"), **body}


def row_json(row: WorkloadRow) -> dict[str, Any]:
    """Return one row of a Prometheus as JSON."""
    return {**asdict(row), "traffic_class": row.traffic_class or None}
