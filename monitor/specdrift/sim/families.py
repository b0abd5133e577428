"""The metric families of vLLM 0.32's /metrics page, in its order, with its help texts.

The help texts are vLLM's (Apache-2.0). `created` marks families with a `_created` gauge.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Family(NamedTuple):
    """One family: its name as in the TYPE line, its type and its help text."""

    name: str
    kind: str
    help: str
    created: bool


def _counter(name: str, text: str) -> Family:
    return Family(f"vllm:{name}", "counter", text, True)


def _histogram(name: str, text: str) -> Family:
    return Family(f"vllm:{name}", "histogram", text, True)


def _gauge(name: str, text: str) -> Family:
    return Family(f"vllm:{name}", "gauge", text, False)


SPECULATION: Final = (
    _counter("spec_decode_num_drafts_total", "Number of spec decoding drafts."),
    _counter("spec_decode_num_draft_tokens_total", "Number of draft tokens."),
    _counter("spec_decode_num_accepted_tokens_total", "Number of accepted tokens."),
    _counter(
        "spec_decode_num_accepted_tokens_per_pos_total",
        "Accepted tokens per draft position.",
    ),
)
"""Present only while speculation is configured."""

ENGINE: Final = (
    _counter(
        "estimated_flops_per_gpu_total",
        "Estimated number of floating point operations per GPU (for Model Flops "
        "Utilization calculations).",
    ),
    _counter(
        "estimated_read_bytes_per_gpu_total",
        "Estimated number of bytes read from memory per GPU (for Model Flops Utilization "
        "calculations).",
    ),
    _counter(
        "estimated_write_bytes_per_gpu_total",
        "Estimated number of bytes written to memory per GPU (for Model Flops Utilization "
        "calculations).",
    ),
    _gauge("num_requests_running", "Number of requests in model execution batches."),
    _gauge("num_requests_waiting", "Number of requests waiting to be processed."),
    _gauge(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for "
        "scheduling capacity; 'deferred' = deferred by transient constraints (LoRA "
        "budget, KV transfer, blocked status). Sum of all reasons equals "
        "vllm:num_requests_waiting.",
    ),
    _gauge(
        "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine "
        "is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep "
        "level 2.",
    ),
    _gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
    _counter(
        "prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
    ),
    _counter("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens."),
    _counter(
        "external_prefix_cache_queries_total",
        "External prefix cache queries from KV connector cross-instance cache sharing, in "
        "terms of number of queried tokens.",
    ),
    _counter(
        "external_prefix_cache_hits_total",
        "External prefix cache hits from KV connector cross-instance cache sharing, in "
        "terms of number of cached tokens.",
    ),
    _counter(
        "mm_cache_queries_total",
        "Multi-modal cache queries, in terms of number of queried items.",
    ),
    _counter("mm_cache_hits_total", "Multi-modal cache hits, in terms of number of cached items."),
    _counter("num_preemptions_total", "Cumulative number of preemption from the engine."),
    _counter("prompt_tokens_total", "Number of prefill tokens processed."),
    _counter("prompt_tokens_by_source_total", "Number of prompt tokens by source."),
    _counter("prompt_tokens_cached_total", "Number of cached prompt tokens (local + external)."),
    _counter(
        "prompt_tokens_cached_by_source_total",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local "
        "HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM "
        "instance) or external_unspecified. Counted at admission; sums to "
        "vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
    ),
    _counter("generation_tokens_total", "Number of generation tokens processed."),
    _counter("request_success_total", "Count of successfully processed requests."),
    _counter(
        "admission_rejections_total",
        "Number of admission attempts rejected by a queue limit, by reason.",
    ),
    _histogram("request_prompt_tokens", "Number of prefill tokens processed."),
    _histogram("request_generation_tokens", "Number of generation tokens processed."),
    _histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step."),
    _histogram(
        "request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
    ),
    _histogram("request_params_n", "Histogram of the n request parameter."),
    _histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter."),
    _histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds."),
    _histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds."),
    _histogram(
        "request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
    ),
    _histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds."),
    _histogram(
        "request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
    ),
    _histogram(
        "request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
    ),
    _histogram(
        "request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
    ),
    _histogram(
        "request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
    ),
    _histogram(
        "request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
    ),
    _histogram(
        "request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
    ),
    _gauge("cache_config_info", "Information of the LLMEngine CacheConfig"),
)

CACHE_CONFIG: Final = {
    "_block_size_resolved": "True",
    "block_size": "16",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "effective_attention_block_size": "16",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "True",
    "gpu_memory_utilization": "0.9",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_cache_max_concurrency": "None",
    "kv_cache_memory_bytes": "None",
    "kv_cache_size_tokens": "None",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": "None",
    "num_gpu_blocks": "32768",
    "num_gpu_blocks_override": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "False",
}
"""Labels of vllm:cache_config_info with the values of the simulated engine."""

BLOCK_TOKENS: Final = 16
NUM_GPU_BLOCKS: Final = 32768
