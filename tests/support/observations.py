"""Windows of counts for charts: seeded, with the over-dispersion that real traffic has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from specdrift.core.detector import ChartState, DetectorConfig, Observation, Signal, step

K = 3


def counts(
    rng: np.random.Generator, levels: Sequence[float], *, sd: float = 0.02, drafts: float = 120.0
) -> list[tuple[float, float, float]]:
    """Drafts, draft tokens and accepted tokens per window: beta-binomial around the levels."""
    p = np.asarray(levels, dtype=float)
    size = np.maximum(p * (1 - p) / sd**2 - 1, 0.5)
    real = rng.beta(p * size, (1 - p) * size)
    d = rng.poisson(drafts, len(p)) + 1
    accepted = rng.binomial(d * K, real)
    return [(float(n), float(n * K), float(a)) for n, a in zip(d, accepted, strict=True)]


def observations(
    rng: np.random.Generator,
    levels: Sequence[float],
    *,
    start: float = 0.0,
    seconds: float = 1.0,
    sd: float = 0.02,
    drafts: float = 120.0,
) -> list[Observation]:
    """One observation per level, back to back from `start`."""
    return [
        Observation(start + i * seconds, start + (i + 1) * seconds, *c)
        for i, c in enumerate(counts(rng, levels, sd=sd, drafts=drafts))
    ]


def empty(start: float, end: float) -> Observation:
    """A window without traffic."""
    return Observation(start, end, 0.0, 0.0, 0.0)


def follow(
    state: ChartState, seen: Iterable[Observation], config: DetectorConfig
) -> tuple[ChartState, list[Signal]]:
    """Step a chart through observations; returns all its signals."""
    signals = []
    for observation in seen:
        state, signal = step(state, observation, config)
        if signal is not None:
            signals.append(signal)
    return state, signals
