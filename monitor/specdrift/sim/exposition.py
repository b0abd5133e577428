"""Write a simulated engine's /metrics page in the text format that vLLM serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from specdrift.conventions import LABEL_ENGINE, LABEL_MODEL, LABEL_POSITION
from specdrift.sim import families
from specdrift.sim.statistics import Histogram
from specdrift.sim.tap_exposition import tap_lines
from specdrift.sim.text import go_float, header, histogram_lines, label_text

if TYPE_CHECKING:
    from specdrift.sim.engine import SimulatedEngine

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

_Values = list[tuple[dict[str, str], float]]
_FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")
# Families that lack one of the two engine labels, as in vLLM.
_LACKS = {
    "vllm:admission_rejections_total": LABEL_ENGINE,
    "vllm:cache_config_info": LABEL_MODEL,
}
_REJECTIONS = ("max_num_queued_reqs", "max_num_queued_tokens")


def render(engine: SimulatedEngine) -> str:
    """Return the whole page: process start, the vllm: families, and the tap's series."""
    start = engine.wall(engine.started_at)
    lines = [
        *header(
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
        ),
        f"process_start_time_seconds {go_float(start)}",
    ]
    base = {LABEL_ENGINE: "0", LABEL_MODEL: engine.model_name}
    created = go_float(start)
    if engine.config is not None:
        values = _speculation(engine)
        for family in families.SPECULATION:
            lines += _values(family, values[family.name], base, created)
    values = _engine(engine)
    histograms = _histograms(engine)
    for family in families.ENGINE:
        if family.kind == "histogram":
            lines += header(family.name, family.kind, family.help)
            lines += histogram_lines(family.name, base, histograms[family.name])
            lines += _created(family.name, family.help, [base], created)
        else:
            lines += _values(family, values[family.name], base, created)
    if engine.tap:
        lines += tap_lines(engine, base)
    lines.append("")
    return "\n".join(lines)


def _values(
    family: families.Family, values: _Values, base: Mapping[str, str], created: str
) -> list[str]:
    lines = header(family.name, family.kind, family.help)
    own = {name: value for name, value in base.items() if name != _LACKS.get(family.name)}
    full = [({**own, **labels}, value) for labels, value in values]
    lines += [f"{family.name}{{{label_text(labels)}}} {go_float(v)}" for labels, v in full]
    if family.created:
        name = family.name.removesuffix("_total")
        lines += _created(name, family.help, [labels for labels, _ in full], created)
    return lines


def _created(
    name: str, text: str, label_sets: Iterable[Mapping[str, str]], created: str
) -> list[str]:
    lines = header(f"{name}_created", "gauge", text)
    lines += [f"{name}_created{{{label_text(labels)}}} {created}" for labels in label_sets]
    return lines


def _speculation(engine: SimulatedEngine) -> dict[str, _Values]:
    """Return the spec_decode counters: sums over the very counts that the tap publishes."""
    k_configured = engine.num_speculative_tokens
    drafts = tokens = accepted = 0
    positions = [0] * k_configured
    for (k, _), counts in engine.statistics.spec.items():
        drafted = int(counts.drafts.sum())
        drafts += drafted
        tokens += drafted * k
        accepted += int(counts.accepted.sum())
        for position, count in enumerate(counts.per_position.sum(axis=0).tolist()):
            positions[position] += count
    return {
        "vllm:spec_decode_num_drafts_total": [({}, drafts)],
        "vllm:spec_decode_num_draft_tokens_total": [({}, tokens)],
        "vllm:spec_decode_num_accepted_tokens_total": [({}, accepted)],
        "vllm:spec_decode_num_accepted_tokens_per_pos_total": [
            ({LABEL_POSITION: str(position)}, count) for position, count in enumerate(positions)
        ],
    }


def _engine(engine: SimulatedEngine) -> dict[str, _Values]:
    statistics = engine.statistics
    prompt, cached = statistics.prompt_tokens, statistics.cached_tokens
    kv_capacity = families.NUM_GPU_BLOCKS * families.BLOCK_TOKENS
    zero: _Values = [({}, 0)]
    by_source = {
        "local_compute": prompt - cached,
        "local_cache_hit": cached,
        "external_kv_transfer": 0,
    }
    tiers = {"device": cached, "host": 0, "p2p": 0, "disk": 0, "external_unspecified": 0}
    awake = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
    waiting = {"capacity": engine.waiting, "deferred": 0}
    values: dict[str, _Values] = {
        "num_requests_running": [({}, engine.running)],
        "num_requests_waiting": [({}, engine.waiting)],
        "num_requests_waiting_by_reason": _labelled("reason", waiting),
        "engine_sleep_state": _labelled("sleep_state", awake),
        "kv_cache_usage_perc": [({}, min(1.0, engine.kv_cache_tokens / kv_capacity))],
        "prefix_cache_queries_total": [({}, prompt)],
        "prefix_cache_hits_total": [({}, cached)],
        "prompt_tokens_total": [({}, prompt)],
        "prompt_tokens_by_source_total": _labelled("source", by_source),
        "prompt_tokens_cached_total": [({}, cached)],
        "prompt_tokens_cached_by_source_total": _labelled("source", tiers),
        "generation_tokens_total": [({}, int(statistics.output_tokens.sum()))],
        "request_success_total": _labelled(
            "finished_reason", {r: statistics.success.get(r, 0) for r in _FINISHED_REASONS}
        ),
        "admission_rejections_total": _labelled("reason", dict.fromkeys(_REJECTIONS, 0)),
        "cache_config_info": [(dict(families.CACHE_CONFIG), 1)],
    }
    return {
        family.name: values.get(family.name.removeprefix("vllm:"), zero)
        for family in families.ENGINE
        if family.kind != "histogram"
    }


def _labelled(name: str, values: Mapping[str, float]) -> _Values:
    return [({name: key}, value) for key, value in values.items()]


def _histograms(engine: SimulatedEngine) -> dict[str, Histogram]:
    statistics = engine.statistics
    return {
        "vllm:request_prompt_tokens": statistics.request_prompt,
        "vllm:request_generation_tokens": statistics.request_generation,
        "vllm:iteration_tokens_total": statistics.iteration,
        "vllm:request_max_num_generation_tokens": statistics.request_max_generation,
        "vllm:request_params_n": statistics.request_n,
        "vllm:request_params_max_tokens": statistics.request_max_tokens,
        "vllm:time_to_first_token_seconds": statistics.first_token,
        "vllm:inter_token_latency_seconds": statistics.inter_token,
        "vllm:request_time_per_output_token_seconds": statistics.per_token,
        "vllm:e2e_request_latency_seconds": statistics.end_to_end,
        "vllm:request_queue_time_seconds": statistics.queue,
        "vllm:request_inference_time_seconds": statistics.inference,
        "vllm:request_prefill_time_seconds": statistics.prefill,
        "vllm:request_decode_time_seconds": statistics.decode,
        "vllm:request_num_preemptions": statistics.preemptions,
        "vllm:request_prefill_kv_computed_tokens": statistics.request_computed,
    }
