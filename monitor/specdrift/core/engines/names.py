"""Which series of which vLLM version carries what: the renames and removals, as one table.

Names are canonical: `vllm:` in front (Ray's spellings are folded into it) and, on counters, no
`_total` (some exporters leave it out). Where several names carry the same fact, the first one
that is on the page wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Spelling:
    """One fact and the names it has had, the newest first.

    Attributes:
        fact: Field of `EngineCounters`.
        names: Canonical names.
        versions: First and last vLLM version seen to export each name, for a person.
    """

    fact: str
    names: tuple[str, ...]
    versions: tuple[str, ...]


# Counters: summed over labels other than model_name and engine.
COUNTERS: Final = (
    Spelling("generation_tokens", ("vllm:generation_tokens",), ("all",)),
    Spelling("prompt_tokens", ("vllm:prompt_tokens",), ("all",)),
    Spelling("requests_finished", ("vllm:request_success",), ("all; by finished_reason",)),
)

# Gauges. The cache gauge is a share; the other two add up over replicas.
GAUGES: Final = (
    Spelling("running", ("vllm:num_requests_running",), ("all",)),
    Spelling("waiting", ("vllm:num_requests_waiting",), ("all",)),
    Spelling(
        "kv_cache_usage",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        ("0.9.2 on", "to 0.10.2; behind a flag in 0.11.2"),
    ),
)

# Histograms. In V1 inter_token_latency and its old name time_per_output_token hold one interval
# per request and engine *step*; only request_time_per_output_token is per token.
HISTOGRAMS: Final = (
    Spelling(
        "step_seconds",
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        ("0.10.2 on", "to 0.11.2; behind a flag to 0.14.1"),
    ),
    Spelling(
        "time_per_output_token",
        ("vllm:request_time_per_output_token_seconds",),
        ("0.11.2 on",),
    ),
    Spelling("time_to_first_token", ("vllm:time_to_first_token_seconds",), ("all",)),
    Spelling("queue_time", ("vllm:request_queue_time_seconds",), ("all",)),
    Spelling("request_seconds", ("vllm:e2e_request_latency_seconds",), ("all",)),
)

# A histogram despite its name: its count is the number of engine steps.
STEPS: Final = "vllm:iteration_tokens_total"

SPEC_DRAFTS: Final = "vllm:spec_decode_num_drafts"
SPEC_DRAFT_TOKENS: Final = "vllm:spec_decode_num_draft_tokens"
SPEC_ACCEPTED: Final = "vllm:spec_decode_num_accepted_tokens"
SPEC_PER_POSITION: Final = "vllm:spec_decode_num_accepted_tokens_per_pos"

PROCESS_START: Final = "process_start_time_seconds"
# Where several server processes share one page there is no process start; this is the next best.
CREATED: Final = "vllm:generation_tokens_created"

# Series that only the V0 engine has. Its speculative counters add running totals again and again,
# so nothing can be judged on them.
V0_ONLY: Final = (
    "vllm:spec_decode_draft_acceptance_rate",
    "vllm:spec_decode_efficiency",
    "vllm:spec_decode_num_emitted_tokens",
    "vllm:num_requests_swapped",
    "vllm:cpu_cache_usage_perc",
    "vllm:cpu_prefix_cache_hit_rate",
    "vllm:gpu_prefix_cache_hit_rate",
    "vllm:time_in_queue_requests",
)
