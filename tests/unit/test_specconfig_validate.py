"""Which engine version takes which speculative config."""

from __future__ import annotations

import pytest

from specdrift.core.specconfig import (
    NGRAM_PRESET,
    OFF,
    SpecConfig,
    lower_num_speculative_tokens,
    parse_version,
    validate,
)
from specdrift.errors import SpecConfigError

EAGLE = {"method": "eagle3", "model": "/m", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("settings", "version"),
    [
        (EAGLE, "0.32.0+simulated"),
        (EAGLE, "0.25.1"),
        (EAGLE, None),
        (NGRAM_PRESET.settings, "0.8.5"),
        ({"method": "suffix"}, "0.32.0"),
        ({"method": "qwen3_next_mtp", "num_speculative_tokens": 1}, "0.20.2"),
        ({"model": "/models/draft", "num_speculative_tokens": 2}, "0.32.0"),
        ({**EAGLE, "disable_by_batch_size": 8}, "0.16.0"),
        ({**EAGLE, "anything": 8}, "0.12.0"),
        ({**EAGLE, "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 0]]}, "0.24.0"),
        ({**EAGLE, "rejection_sample_method": "block"}, "0.26.0"),
        ({"method": "medusa", "model": "/m"}, "0.32.0"),
        ({}, "0.32.0"),
    ],
)
def test_accepted(settings: dict[str, object], version: str | None) -> None:
    validate(SpecConfig(settings), version)
    validate(OFF, version)


@pytest.mark.parametrize(
    ("settings", "version", "part"),
    [
        ({**EAGLE, "num_speculative_token": 3}, "0.32.0", "'num_speculative_token'"),
        ({**EAGLE, "disable_by_batch_size": 8}, "0.17.1", "crash the engine at start"),
        ({**EAGLE, "anything": 8}, "0.8.5", "'anything'"),
        ({**EAGLE, "tensor_parallel_size": 2}, "0.32.0", "'tensor_parallel_size'"),
        ({**EAGLE, "enforce_eager": True}, None, "unknown"),
        ({**EAGLE, "fly_window_size": 4}, "0.32.0", "'fly_window_size'"),
        ({**EAGLE, "num_speculative_tokens": 0}, "0.32.0", "above 0"),
        ({**EAGLE, "num_speculative_tokens": True}, "0.32.0", "above 0"),
        ({**EAGLE, "num_speculative_tokens": "3"}, "0.32.0", "above 0"),
        ({"method": "eagle3", "num_speculative_tokens": 3}, "0.32.0", "needs a model"),
        ({"method": "ngram"}, "0.32.0", "needs num_speculative_tokens"),
        ({**NGRAM_PRESET.settings, "prompt_lookup_min": 9}, "0.32.0", "must not exceed"),
        ({"method": "medusa", "model": "/m"}, "0.33.0", "'medusa'"),
        ({"method": "pard", "model": "/m"}, "0.32.0", "'pard'"),
        ({"method": 3}, "0.32.0", "must be a string"),
        ({"num_speculative_tokens": 3}, "0.32.0", "neither a method nor a model"),
        ({"method": "dflash", "model": "/m"}, "0.19.1", "'dflash'"),
        ({**EAGLE, "rejection_sample_method": "fly"}, "0.32.0", "'fly'"),
        ({**EAGLE, "num_speculative_tokens_per_batch_size": [[2, 8, 3]]}, "0.32.0", "start at"),
        ({**EAGLE, "num_speculative_tokens_per_batch_size": [[1, 8, "3"]]}, "0.32.0", "three"),
        (
            {**EAGLE, "num_speculative_tokens_per_batch_size": [[1, 8, 3], [4, 9, 1]]},
            "0.32.0",
            "over",
        ),
        ({**EAGLE, "num_speculative_tokens_per_batch_size": 4}, "0.32.0", "must be a list"),
        (EAGLE, "latest", "engine version"),
    ],
)
def test_refused_with_the_key_named(
    settings: dict[str, object], version: str | None, part: str
) -> None:
    with pytest.raises(SpecConfigError) as caught:
        validate(SpecConfig(settings), version)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_versions_are_read() -> None:
    assert parse_version("v0.25.1rc2") == (0, 25, 1)
    assert parse_version("0.32") == (0, 32, 0)
    assert parse_version("nightly") is None


def test_lower_k() -> None:
    lowered = lower_num_speculative_tokens(SpecConfig(EAGLE), 1)
    assert lowered.settings == {**EAGLE, "num_speculative_tokens": 1}
    for n in (0, 3, 4):
        with pytest.raises(SpecConfigError):
            lower_num_speculative_tokens(SpecConfig(EAGLE), n)
    with pytest.raises(SpecConfigError):
        lower_num_speculative_tokens(SpecConfig({"method": "suffix"}), 2)
