"""What a rung must come to in a scenario: equilibrium of the step model, without simulating.

At a fixed arrival rate a slower engine holds more requests, which makes it slower still; the
equilibrium is where running requests = request-steps per second times seconds per step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specdrift.core.specconfig import SpecConfig
from specdrift.sim.physics import has_full_coverage, step_model
from specdrift.sim.resolved import ResolvedScenario


@dataclass(frozen=True)
class Outlook:
    """How a rung does at one moment of a scenario.

    Args:
        running: Running requests at equilibrium (infinite where the engine cannot keep up).
        step_seconds: Seconds per step there.
        seconds_per_token: Mean seconds per output token over all traffic.
        tokens_per_step: Output tokens per request and step, over all traffic.
        draft_share: Draft tokens per request-step over K (below 1 where drafts are missing).
    """

    running: float
    step_seconds: float
    seconds_per_token: float
    tokens_per_step: float
    draft_share: float


def outlook(resolved: ResolvedScenario, config: SpecConfig | None, t: float) -> Outlook:
    """Return the equilibrium of `config` (None: off) under the traffic of scenario time `t`."""
    model = step_model(resolved.engine.step_time, config)
    k = model.max_k
    method = "" if config is None else config.method or ""
    tokens = steps = drafted = prompt = 0.0
    for name, spec in resolved.classes.items():
        rate = resolved.arrivals(name, t)
        length = spec.output_tokens.mean
        coverage = 1.0 if has_full_coverage(method) else spec.coverage
        mean = resolved.truth(name, method, t) if k else 0.0
        per_step = _tokens_per_step(mean, spec.between_requests_sd, k, coverage)
        own = rate * ((length - 1) / per_step + 1)
        tokens += rate * length
        steps += own
        drafted += own * coverage
        prompt += rate * spec.prompt_tokens.mean * 0.9
    share = drafted / steps if k and steps else 0.0
    free = 1.0 - prompt * resolved.engine.step_time.prefill_seconds_per_token
    draft_tokens = round(1000 * k * share)
    fixed = model.seconds(0, k, 0) / free
    slope = (model.seconds(1000, k, draft_tokens) - model.seconds(0, k, 0)) / 1000 / free
    if steps * slope >= 1.0:
        return Outlook(math.inf, math.inf, math.inf, tokens / steps, share)
    seconds = fixed / (1.0 - steps * slope)
    return Outlook(
        running=steps * seconds,
        step_seconds=seconds,
        seconds_per_token=seconds * steps / tokens,
        tokens_per_step=tokens / steps,
        draft_share=share,
    )


def speed(resolved: ResolvedScenario, config: SpecConfig | None, t: float, running: float) -> float:
    """Return output tokens per second of a batch of `running` requests at scenario time `t`."""
    model = step_model(resolved.engine.step_time, config)
    seen = outlook(resolved, config, t)
    k = model.max_k
    fixed = model.seconds(0, k, 0)
    slope = (model.seconds(1000, k, round(1000 * k * seen.draft_share)) - fixed) / 1000
    return running * seen.tokens_per_step / (fixed + slope * running)


def _tokens_per_step(mean: float, sd: float, k: int, coverage: float) -> float:
    """Return the harmonic mean over requests of 1 + coverage * (a + ... + a^k), a ~ beta."""
    if k == 0:
        return 1.0
    sd = min(sd, 0.5 * math.sqrt(max(mean * (1 - mean), 0.0)))
    if sd <= 0.0:
        return 1.0 + coverage * sum(mean**j for j in range(1, k + 1))
    weight = mean * (1 - mean) / sd**2 - 1
    grid = (np.arange(400) + 0.5) / 400
    logs = (mean * weight - 1) * np.log(grid) + ((1 - mean) * weight - 1) * np.log1p(-grid)
    density = np.exp(logs - logs.max())
    density /= density.sum()
    lengths = 1.0 + coverage * sum(grid**j for j in range(1, k + 1))
    return float(1.0 / np.sum(density / lengths))
