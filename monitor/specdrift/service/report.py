"""What the loop shows of itself: the state document and one point of the time series per tick.

Every number that is not known is null, never 0 or NaN. Shapes: service/views.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from specdrift import __version__
from specdrift.config import Policy, prices
from specdrift.conventions import CLASS_DEFAULT
from specdrift.core import cost, economics, latency
from specdrift.core import pipeline as pipes
from specdrift.core.detector import BANK, ChartState, DetectorConfig
from specdrift.core.economics import Estimate
from specdrift.core.engines.model import Histogram
from specdrift.core.estimators import Share
from specdrift.core.loop import Decision, LoopState
from specdrift.core.pipeline import PipelineState, Recent
from specdrift.core.policy import ClassView, Facts, Rules
from specdrift.core.windows import WindowState
from specdrift.service.views import DOCUMENT_STATE, PointView, StateView

if TYPE_CHECKING:
    from specdrift.service.tick import Controller

POINT_WINDOWS = 6
LATENCY_WINDOWS = 12

Row = dict[str, object]


def state_view(
    controller: Controller, facts: Facts, rules: Rules, decision: Decision | None
) -> str:
    """Return the state document as JSON text (StateView)."""
    memory, policy = controller.memory, controller.policy
    pipeline, loop = memory.pipeline, memory.loop
    config = policy.detector_config(max(1, len(facts.classes)))
    recent = pipeline.recent[-POINT_WINDOWS:]
    last = decision or None
    previous = _previous_decision(controller) if last is None else None
    omega = economics.overhead(facts.point, facts.reference) if facts.point else None
    k = facts.point.num_speculative_tokens if facts.point else 0
    view: Row = {
        "version": __version__,
        "workload": controller.workload,
        "simulated": controller.simulated,
        "mode": rules.mode.value,
        "paused": rules.mode is not policy.mode,
        "phase": loop.phase.value,
        "rung": loop.rung,
        "settings": loop.settings,
        "config_key": pipeline.recent_key or None,
        "engine_state": pipeline.last_state,
        "engine_version": memory.version,
        "time": facts.now,
        "scrape_interval": rules.scrape_interval,
        "false_alarm_interval": config.false_alarm_interval,
        "drops": [config.smallest_drop * factor for factor in BANK],
        "classes": [_class_row(pipeline, c, loop, config, recent) for c in facts.classes],
        "blended_acceptance": _blended(recent),
        "benefit": _estimate(facts.benefit),
        "break_even_acceptance": (
            economics.break_even_acceptance(omega, k) if omega is not None and k else None
        ),
        "running": facts.point.running if facts.point else None,
        "waiting": recent[-1].waiting if recent else None,
        "tokens_per_second": _tokens_per_second(recent),
        "step_seconds": facts.point.step_seconds if facts.point else None,
        "num_speculative_tokens": k if facts.point else None,
        "next_probe_at": loop.probe_at,
        "last_decision": (
            {"time": last.time, "kind": last.kind.value, "sentence": last.sentence}
            if last is not None
            else previous
        ),
        "cost": _cost(policy, pipeline, facts.benefit),
    }
    return StateView.model_validate(view).model_dump_json()


def _previous_decision(controller: Controller) -> object:
    text = controller.ports.store.document(DOCUMENT_STATE)
    return json.loads(text).get("last_decision") if text else None


def _class_row(
    pipeline: PipelineState,
    view: ClassView,
    loop: LoopState,
    config: DetectorConfig,
    recent: tuple[Recent, ...],
) -> Row:
    chart = _chart_of(pipeline, view.traffic_class, loop)
    shares = {n: s.draft_tokens for r in recent for n, s in _by_name(r).items()}
    total = sum(shares.values())
    progress = None
    if chart is not None:
        learned = chart.baseline is not None
        progress = 1.0 if learned else min(1.0, chart.seconds_seen / config.phase_one)
    return {
        "traffic_class": view.traffic_class,
        "chart_phase": chart.phase.value if chart is not None else "learning",
        "acceptance": view.acceptance,
        "baseline": view.baseline,
        "standard_error": (
            chart.baseline.standard_error if chart is not None and chart.baseline else None
        ),
        "side": view.side,
        "cause": view.cause,
        "evidence": list(view.evidence),
        "advice": view.advice,
        "effect": view.effect,
        "interval": list(view.interval) if view.interval else None,
        "change_point": view.change_point,
        "alarm_time": view.alarm_time,
        "changed_with_deployment": view.changed_with_deployment,
        "cusum": {
            "drop": [s.value for s in chart.drop] if chart is not None else [],
            "rise": [s.value for s in chart.rise] if chart is not None else [],
        },
        "decision_intervals": list(chart.intervals) if chart is not None else [],
        "phase_one_progress": progress,
        "share": shares.get(view.traffic_class, 0.0) / total if total > 0 else None,
    }


def _by_name(recent: Recent) -> dict[str, Share]:
    return {s.traffic_class: s for s in recent.by_class}


def _chart_of(pipeline: PipelineState, name: str, loop: LoopState) -> ChartState | None:
    method = str(loop.as_found.get("method") or "unknown")
    home = f"{method}:{loop.as_found.get('num_speculative_tokens') or 'unknown'}"
    for key in (home, pipeline.recent_key):
        chart = pipeline.charts.get(f"{name}|{key}")
        if chart is not None:
            return chart
    return None


def point_view(pipeline: PipelineState, facts: Facts, loop: LoopState, policy: Policy) -> str:
    """Return one point of the time series as JSON text (PointView)."""
    # Between two processes there is no rate: a gap, not the last value once more.
    recent = pipeline.recent[-POINT_WINDOWS:] if _measuring(pipeline) else ()
    row = economics.merge_rows(r.row for r in recent if r.row is not None)
    price, gpus = _price(policy)
    rate = _tokens_per_second(recent)
    benefit = economics.speedup([r.row for r in recent if r.row is not None], facts.reference)
    off = pipeline.recent_key == pipes.OFF_KEY
    window = pipeline.recent[-LATENCY_WINDOWS:] if recent else ()
    speed = 1.0 if off and row is not None else (benefit.value if benefit else None)
    point: Row = {
        "time": facts.now,
        "state": pipeline.last_state,
        "rung": loop.rung,
        "phase": loop.phase.value,
        "running": row.running if row else None,
        "waiting": recent[-1].waiting if recent else None,
        "batch_bucket": latency.batch_bucket(row.running) if row else None,
        "step_seconds": row.step_seconds if row else None,
        "tokens_per_second": rate,
        "acceptance": _blended(recent),
        "mean_acceptance_length": _length(recent),
        "speedup": speed,
        "time_per_output_token": _latency_row([r.time_per_output_token for r in window]),
        "time_to_first_token": _latency_row([r.time_to_first_token for r in window]),
        "dollars_per_million_tokens": (
            economics.cost_per_million_tokens(price, gpus, rate)
            if price is not None and rate
            else None
        ),
        "dollars_per_hour_gained": (
            economics.dollars_per_hour_gained(price, gpus, speed)
            if price is not None and speed is not None
            else None
        ),
        "classes": {
            c.traffic_class: _class_point(pipeline, c, loop, recent, price, gpus, facts.now)
            for c in facts.classes
        },
    }
    return PointView.model_validate(point).model_dump_json()


def _measuring(pipeline: PipelineState) -> bool:
    return pipeline.last_state in (
        WindowState.OK,
        WindowState.SPECULATION_OFF,
        WindowState.NO_TRAFFIC,
    )


def _class_point(
    pipeline: PipelineState,
    view: ClassView,
    loop: LoopState,
    recent: tuple[Recent, ...],
    price: float | None,
    gpus: float,
    now: float,
) -> Row:
    chart = _chart_of(pipeline, view.traffic_class, loop)
    shares = [s for r in recent for n, s in _by_name(r).items() if n == view.traffic_class]
    drafted = sum(s.draft_tokens for s in shares)
    accepted = sum(s.accepted_tokens for s in shares)
    tokens = sum(r.class_output_tokens.get(view.traffic_class, 0.0) for r in recent)
    return {
        "acceptance": accepted / drafted if drafted > 0 else None,
        "draft_tokens": drafted,
        "drafts": None,
        "output_tokens": tokens,
        "baseline": view.baseline,
        # The chart starts anew in the tick that alarms: show that it crossed.
        "cusum": 1.0 if pipeline.recent and view.alarm_time == now else _cusum(chart),
        "dollars_per_million_tokens": _class_cost(view.traffic_class, recent, price, gpus),
    }


def _class_cost(
    name: str, recent: tuple[Recent, ...], price: float | None, gpus: float
) -> float | None:
    """Return a class's share of request-steps x GPU time, per million of its tokens."""
    used = sum(r.class_request_steps.get(name, 0.0) for r in recent)
    every = sum(sum(r.class_request_steps.values()) for r in recent)
    tokens = sum(r.class_output_tokens.get(name, 0.0) for r in recent)
    seconds = sum(r.seconds for r in recent)
    if price is None or every <= 0 or tokens <= 0:
        return None
    return price * gpus / 3600.0 * seconds * used / every / tokens * 1e6


def _cusum(chart: ChartState | None) -> float | None:
    """Return the largest S / h of a chart; None while it learns."""
    if chart is None or chart.baseline is None or not chart.intervals:
        return None
    values = [s.value / h for s, h in zip(chart.drop, chart.intervals, strict=True)]
    values += [s.value / h for s, h in zip(chart.rise, chart.intervals, strict=True)]
    return max(values)


def _latency_row(histograms: list[Histogram | None]) -> Row:
    merged = latency.merge(histograms).histogram
    row: Row = {"mean": latency.mean(merged)}
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        found = latency.histogram_quantile(q, merged)
        row[name] = found.seconds if found is not None else None
    return row


def _blended(recent: tuple[Recent, ...]) -> float | None:
    drafted = sum(r.spec.draft_tokens for r in recent if r.spec is not None)
    accepted = sum(r.spec.accepted_tokens for r in recent if r.spec is not None)
    return accepted / drafted if drafted > 0 else None


def _length(recent: tuple[Recent, ...]) -> float | None:
    drafts = sum(r.spec.drafts for r in recent if r.spec is not None)
    accepted = sum(r.spec.accepted_tokens for r in recent if r.spec is not None)
    return 1.0 + accepted / drafts if drafts > 0 else None


def _tokens_per_second(recent: tuple[Recent, ...]) -> float | None:
    rows = [r for r in recent if r.row is not None]
    seconds = sum(r.seconds for r in rows)
    return sum(r.row.tokens for r in rows if r.row) / seconds if seconds > 0 else None


def _price(policy: Policy) -> tuple[float | None, float]:
    told = policy.spec.cost
    return told.price.dollars_per_gpu_hour, told.gpus


def _cost(policy: Policy, pipeline: PipelineState, benefit: Estimate | None) -> Row | None:
    told, price = policy.spec.cost, policy.spec.cost.price.dollars_per_gpu_hour
    if told.gpu is None and price is None:
        return None
    gpus = told.gpus
    about: Row = {
        "gpu": told.gpu,
        "gpus": gpus,
        "price_source": told.price.source or None,
        "price_verified": told.price.verified,
        "unknown_because": told.price.unknown_because,
        "apis": [asdict(api) for api in prices().apis.values()],
    }
    if price is None:
        return about
    ledger, key = pipeline.ledger, pipeline.recent_key
    off = key == pipes.OFF_KEY
    classes = cost.by_class(ledger, key, price, gpus, CLASS_DEFAULT, off=off)
    rate = _tokens_per_second(pipeline.recent[-POINT_WINDOWS:])
    return {
        **about,
        "busy_share": cost.busy_share(ledger, key),
        "total": [asdict(one) for one in cost.totals(ledger, key, price, gpus, off=off)],
        "classes": [asdict(one) for one in classes],
        "methods": [asdict(o) for o in cost.by_method(ledger, price, gpus, pipes.OFF_KEY)],
        "dollars_per_gpu_hour": price,
        "dollars_per_million_tokens": (
            economics.cost_per_million_tokens(price, gpus, rate) if rate else None
        ),
        "dollars_per_hour_gained": (
            economics.dollars_per_hour_gained(price, gpus, benefit.value) if benefit else None
        ),
    }


def _estimate(estimate: Estimate | None) -> Mapping[str, object] | None:
    if estimate is None:
        return None
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "windows": estimate.windows,
    }
