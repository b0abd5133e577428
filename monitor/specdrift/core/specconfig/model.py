"""The speculative config as a value, and the presets that policies name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specdrift.errors import SpecConfigError

NGRAM_METHOD: Final = "ngram"
DRAFT_MODEL_METHOD: Final = "draft_model"


@dataclass(frozen=True)
class SpecConfig:
    """One speculative config, exactly as an engine is given it.

    Args:
        settings: Keys and values as in vLLM's JSON; empty means speculation is off.
    """

    settings: Mapping[str, object]

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))

    def __hash__(self) -> int:
        return hash(json.dumps(self.settings, sort_keys=True, default=str))

    @property
    def off(self) -> bool:
        """Return whether this says "no speculation"."""
        return not self.settings

    @property
    def method(self) -> str | None:
        """Return the method in force: as written, or inferred from the model as vLLM does."""
        written = self.settings.get("method")
        if isinstance(written, str) and written:
            return NGRAM_METHOD if written == "[ngram]" else written
        model = self.settings.get("model")
        if not isinstance(model, str) or not model:
            return None
        if model in (NGRAM_METHOD, "[ngram]"):
            return NGRAM_METHOD
        name = model.lower()
        if "eagle3" in name:
            return "eagle3"
        return "eagle" if "eagle-" in name else DRAFT_MODEL_METHOD

    @property
    def num_speculative_tokens(self) -> int | None:
        """Return K, the draft tokens proposed per step (None where the engine chooses)."""
        value = self.settings.get("num_speculative_tokens")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def to_json(self) -> str:
        """Return compact JSON that an engine's command line takes."""
        return json.dumps(self.settings, separators=(",", ":"))

    def describe(self) -> str:
        """Return a short name for people, e.g. `eagle3 K=3` or `off`."""
        if self.off:
            return "off"
        k = self.num_speculative_tokens
        return self.method or "unknown method" if k is None else f"{self.method} K={k}"


OFF: Final = SpecConfig({})
NGRAM_PRESET: Final = SpecConfig(
    {
        "method": NGRAM_METHOD,
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 8,
        "prompt_lookup_max": 8,
    }
)


def lower_num_speculative_tokens(config: SpecConfig, n: int) -> SpecConfig:
    """Return `config` with K lowered to `n` draft tokens per step.

    Raises:
        SpecConfigError: `n` is not within 1..K-1, or the config states no K to lower.
    """
    k = config.num_speculative_tokens
    if k is None:
        raise SpecConfigError(
            "cannot lower num_speculative_tokens", why="the config does not state it"
        )
    if not 1 <= n < k:
        raise SpecConfigError(
            f"cannot lower num_speculative_tokens from {k} to {n}",
            why=f"the new value must lie between 1 and {k - 1}",
        )
    return SpecConfig({**config.settings, "num_speculative_tokens": n})
