"""How long a simulated engine step takes, and which numbers a method uses. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from specdrift.core.specconfig import SpecConfig
from specdrift.sim.scenario import StepTime

V = TypeVar("V")
D = TypeVar("D")

# Methods that look drafts up in the prompt: they may have nothing to propose.
LOOKUP_METHODS = ("ngram", "ngram_gpu", "suffix")
# Methods with a trained draft; the first one that a scenario knows stands in for the others.
TRAINED_METHODS = ("eagle3", "eagle", "mtp", "draft_model", "medusa", "dflash", "dspark")
_SUFFIX_DEFAULT_K = 24


def lookup(values: Mapping[str, V], method: str, *, default: D) -> V | D:
    """Return a method's value, or that of the nearest related method, or the default."""
    if method in values:
        return values[method]
    for related in LOOKUP_METHODS if method in LOOKUP_METHODS else TRAINED_METHODS:
        if related in values:
            return values[related]
    return default


def has_full_coverage(method: str) -> bool:
    """Return whether the method proposes a draft in every step."""
    return method not in LOOKUP_METHODS


@dataclass(frozen=True)
class StepModel:
    """T(batch, K) for one method, in seconds.

    Args:
        times: The scenario's parameters.
        draft: Fixed seconds per draft position.
        draft_request: Seconds per draft position and request.
        schedule: Dynamic K: `(first, last, k)` by batch size; empty if none.
        max_k: Configured K; 0 is off.
    """

    times: StepTime
    draft: float
    draft_request: float
    schedule: tuple[tuple[int, int, int], ...]
    max_k: int

    def draft_length(self, batch: int) -> int:
        """Return the K in force for `batch` running requests."""
        if not self.schedule:
            return self.max_k
        k = self.max_k
        for first, _, wanted in self.schedule:
            if batch >= first:
                k = min(wanted, self.max_k)
        return k

    def seconds(self, batch: int, k: int, draft_tokens: int, prefill_tokens: int = 0) -> float:
        """Return a step's seconds, without noise.

        Args:
            batch: Running requests.
            k: Draft positions computed in this step; 0 without speculation.
            draft_tokens: Draft tokens verified over the whole batch, at most `batch * k`.
            prefill_tokens: Prompt tokens processed in the same step.
        """
        times = self.times
        return (
            times.base_seconds
            + times.per_token_seconds * (batch + draft_tokens)
            + k * (self.draft + self.draft_request * batch)
            + times.prefill_seconds_per_token * prefill_tokens
        )


def step_model(times: StepTime, config: SpecConfig | None) -> StepModel:
    """Return the step model of an engine that runs with `config` (None: off)."""
    if config is None or config.off:
        return StepModel(times, 0.0, 0.0, (), 0)
    method = config.method or ""
    k = config.num_speculative_tokens or (_SUFFIX_DEFAULT_K if method == "suffix" else 1)
    rows = config.settings.get("num_speculative_tokens_per_batch_size")
    schedule = tuple((int(a), int(b), int(c)) for a, b, c in rows) if isinstance(rows, list) else ()
    return StepModel(
        times=times,
        draft=lookup(times.draft_seconds_per_token, method, default=0.0),
        draft_request=lookup(times.draft_seconds_per_token_and_request, method, default=0.0),
        schedule=schedule,
        max_k=k,
    )
