"""Metrics pages for tests: small ones made here, real ones from tests/fixtures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures" / "vllm-0.32"


def fixture(name: str) -> str:
    """Return a captured page of a real vLLM 0.32."""
    return (FIXTURES / f"metrics-{name}.prom").read_text()


def histogram(name: str, labels: str, buckets: Mapping[str, float], total: float) -> str:
    """Return the lines of one histogram."""
    lines = [f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{{labels},le="{le}"}} {value}' for le, value in buckets.items()]
    lines += [f"{name}_sum{{{labels}}} {total}"]
    lines += [f"{name}_count{{{labels}}} {list(buckets.values())[-1]}"]
    return "\n".join(lines) + "\n"


def vllm_page(
    drafts: float | str = 100,
    tokens: float | str = 300,
    accepted: float | str = 150,
    *,
    generated: float = 400,
    steps: float = 200,
    step_seconds: float = 2.0,
    positions: tuple[float, ...] = (80, 50, 20),
    labels: str = 'engine="0",model_name="m"',
    prefix: str = "vllm:",
    start: float = 1000.0,
    running: float = 2.0,
    speculation: bool = True,
    head: bool = True,
) -> str:
    """Return a small page in vLLM's spelling; counters as given."""
    text = ""
    if head:
        text += "# TYPE process_start_time_seconds gauge\n"
        text += f"process_start_time_seconds {start}\n"
    if speculation:
        text += f"# TYPE {prefix}spec_decode_num_drafts_total counter\n"
        text += f"{prefix}spec_decode_num_drafts_total{{{labels}}} {drafts}\n"
        text += f"{prefix}spec_decode_num_draft_tokens_total{{{labels}}} {tokens}\n"
        text += f"{prefix}spec_decode_num_accepted_tokens_total{{{labels}}} {accepted}\n"
        for position, count in enumerate(positions):
            name = f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"
            text += f'{name}{{{labels},position="{position}"}} {count}\n'
    text += f"# TYPE {prefix}generation_tokens_total counter\n"
    text += f"{prefix}generation_tokens_total{{{labels}}} {generated}\n"
    text += f"{prefix}prompt_tokens_total{{{labels}}} 50\n"
    text += f'{prefix}request_success_total{{{labels},finished_reason="stop"}} 3\n'
    text += f'{prefix}request_success_total{{{labels},finished_reason="length"}} 4\n'
    text += f"{prefix}num_requests_running{{{labels}}} {running}\n"
    text += f"{prefix}num_requests_waiting{{{labels}}} 1\n"
    text += f"{prefix}kv_cache_usage_perc{{{labels}}} 0.25\n"
    text += histogram(
        f"{prefix}inter_token_latency_seconds",
        labels,
        {"0.01": steps // 2, "0.025": steps, "+Inf": steps},
        step_seconds,
    )
    text += histogram(f"{prefix}iteration_tokens_total", labels, {"8.0": 90, "+Inf": 100}, 450)
    text += histogram(f"{prefix}time_to_first_token_seconds", labels, {"1.0": 10, "+Inf": 10}, 1)
    return text
