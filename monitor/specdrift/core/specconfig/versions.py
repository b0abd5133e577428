"""What each vLLM version accepts in its speculative config: keys and methods.

A span is `(first version, first version without it)`; None means "still there". The versions are
those where a change was first seen in a release, so a span may start a release too late.
"""

from __future__ import annotations

import re
from typing import Final

Version = tuple[int, int, int]
Span = tuple[Version, Version | None]

V1_FIRST: Final[Version] = (0, 8, 0)
# Unknown keys: TypeError before 0.9, silently ignored until 0.16, a crash at start from there.
UNKNOWN_KEYS_IGNORED: Final[tuple[Version, Version]] = ((0, 9, 0), (0, 16, 0))


def _since(*first: int) -> Span:
    return _version(first), None


def _between(first: tuple[int, ...], gone: tuple[int, ...]) -> Span:
    return _version(first), _version(gone)


def _version(parts: tuple[int, ...]) -> Version:
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major, minor, patch


_EVERY_V1: Final = (
    "method",
    "model",
    "num_speculative_tokens",
    "draft_tensor_parallel_size",
    "quantization",
    "max_model_len",
    "revision",
    "code_revision",
    "prompt_lookup_max",
    "prompt_lookup_min",
)

KEYS: Final[dict[str, Span]] = {
    **dict.fromkeys(_EVERY_V1, (V1_FIRST, None)),
    "acceptance_method": _between((0, 8), (0, 10)),
    "posterior_threshold": _between((0, 8), (0, 10)),
    "posterior_alpha": _between((0, 8), (0, 10)),
    "disable_mqa_scorer": _between((0, 8), (0, 10)),
    "disable_logprobs": _between((0, 8), (0, 11)),
    "disable_by_batch_size": _between((0, 8), (0, 17)),
    "speculative_token_tree": _between((0, 9, 2), (0, 21)),
    "enforce_eager": _since(0, 11),
    "disable_padded_drafter_batch": _since(0, 11),
    "suffix_decoding_max_tree_depth": _since(0, 11),
    "suffix_decoding_max_cached_requests": _since(0, 11),
    "suffix_decoding_max_spec_factor": _since(0, 11),
    "suffix_decoding_min_token_prob": _since(0, 11),
    "parallel_drafting": _since(0, 16),
    "use_local_argmax_reduction": _since(0, 17),
    "draft_load_config": _since(0, 17),
    "rejection_sample_method": _since(0, 18, 1),
    "moe_backend": _since(0, 19, 1),
    "synthetic_acceptance_rate": _between((0, 19), (0, 20)),
    "synthetic_acceptance_rates": _since(0, 20),
    "synthetic_acceptance_length": _since(0, 20),
    "attention_backend": _since(0, 22, 1),
    "draft_sample_method": _since(0, 22, 1),
    "num_speculative_tokens_per_batch_size": _since(0, 24),
    "kv_cache_dtype": _since(0, 26),
    "use_heterogeneous_vocab": _since(0, 26),
    "enable_adaptive_verification": _since(0, 28),
    "dspark_draft_topk": _since(0, 28),
    "index_share_for_mtp_iteration": _since(0, 31),
    "disable_eagle_block_drop": _since(0, 31),
    "disable_lookahead_block_hashes": _since(0, 33),
    "draft_lm_head_quantization": _since(0, 33),
    "xpress_topc": _since(0, 33),
    "fly_window_size": _since(0, 33),
    "fly_entropy_threshold": _since(0, 33),
    "fly_entropy_top_k": _since(0, 33),
}
"""Accepted keys. `tensor_parallel_size` is left out: vLLM knows it only to refuse it."""

METHODS: Final[dict[str, Span]] = {
    "ngram": _since(0, 8),
    "ngram_gpu": _since(0, 18, 1),
    "suffix": _since(0, 11),
    "draft_model": _since(0, 16),
    "eagle": _since(0, 8),
    "eagle3": _since(0, 9),
    "deepseek_mtp": _since(0, 9),
    "mtp": _since(0, 11),
    "dflash": _since(0, 20),
    "dspark": _since(0, 26),
    "custom_class": _since(0, 22, 1),
    "medusa": _between((0, 8), (0, 33)),
    "mlp_speculator": _between((0, 8), (0, 33)),
}
"""Accepted methods. Other names that end in `_mtp` are aliases of `mtp`."""

REJECTION_SAMPLE_METHODS: Final[tuple[tuple[Version, frozenset[str]], ...]] = (
    ((0, 33, 0), frozenset({"standard", "synthetic", "block", "fly"})),
    ((0, 26, 0), frozenset({"standard", "synthetic", "block"})),
    ((0, 22, 0), frozenset({"standard", "synthetic"})),
    ((0, 19, 0), frozenset({"strict", "probabilistic", "synthetic"})),
    ((0, 18, 0), frozenset({"strict", "probabilistic"})),
)
"""Values of rejection_sample_method, newest first: the first entry not above the version counts."""


def parse_version(text: str) -> Version | None:
    """Return the release numbers of `0.32.0+simulated` or `v0.25.1rc2`; None if there are none."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0)


def within(span: Span, version: Version) -> bool:
    """Return whether `version` lies in the span."""
    first, gone = span
    return first <= version and (gone is None or version < gone)


def key_accepted(key: str, version: Version | None) -> bool:
    """Return whether the version takes this key; None asks for every V1 version."""
    span = KEYS.get(key)
    if span is None:
        return False
    return span == (V1_FIRST, None) if version is None else within(span, version)


def method_accepted(method: str, version: Version | None) -> bool:
    """Return whether the version knows this method; None asks for any version."""
    span = METHODS.get(method)
    if span is None and method.endswith("_mtp"):
        span = METHODS["mtp"]
    return span is not None and (version is None or within(span, version))
