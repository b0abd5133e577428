"""What speculation gains or costs, measured: step times, speedup, break-even, dollars.

Speedup = time per token without speculation / time per token with it, at the same number of
running requests B. It is *not* the mean acceptance length: a verify step costs more than a plain
one. With L tokens per request and step, speedup = L T(B, 0) / T(B, K); break-even acceptance is
where that is 1: omega / K with omega = T(B, K) / T(B, 0) - 1 (reference, section 4).

T(B, 0) is only ever measured: windows in which speculation was off (a calibration at the start,
a fallback in force). Where B lies outside what was measured the answer is None, not a guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from specdrift.core.windows import Window

BINS_PER_OCTAVE = 3
FEWEST_REQUEST_STEPS = 20.0
# How far beyond the measured loads T(B) may be carried on, as a factor of B.
REACH = 1.5
# Up to so many requests a step takes about as long as for one.
MEMORY_BOUND = 8.0
# Error of T(B, 0) itself (interpolation over the load), relative.
TABLE_ERROR = 0.015
DECAY = 0.995


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One window's speed: counts, and request-weighted step time at its mean load.

    Attributes:
        running: Mean requests per decode step (B).
        step_seconds: Mean seconds of a step, weighted by the requests in it.
        tokens: Tokens produced by decode steps (first tokens excluded).
        request_steps: Requests summed over steps.
    """

    time: float
    running: float
    step_seconds: float
    tokens: float
    request_steps: float

    @property
    def seconds_per_token(self) -> float:
        """Return the time one request waits for one token."""
        return self.step_seconds * self.request_steps / self.tokens

    @property
    def tokens_per_step(self) -> float:
        """Return L: tokens per request and step, bonus token included."""
        return self.tokens / self.request_steps


def speed_row(window: Window) -> SpeedRow | None:
    """Return a window's speed, or None when the engine did not tell or did nothing."""
    steps, seconds = window.request_steps, window.request_step_seconds
    running, generated = window.mean_running, window.generation_tokens
    if not steps or not seconds or not running or not generated:
        return None
    tokens = generated - (window.first_tokens or 0.0)
    if tokens <= 0 or steps < FEWEST_REQUEST_STEPS:
        return None
    return SpeedRow(window.end, running, seconds / steps, tokens, steps)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """T(B) of one configuration: load bin -> (weight, weighted sum of B, weighted sum of T)."""

    bins: Mapping[int, tuple[float, float, float]] = field(default_factory=dict)

    def add(self, row: SpeedRow) -> StepTimes:
        """Return the table with one more window; old windows fade slowly."""
        index = math.floor(BINS_PER_OCTAVE * math.log2(max(row.running, 1.0)) + 0.5)
        w, b, t = self.bins.get(index, (0.0, 0.0, 0.0))
        n = row.request_steps
        updated = (
            w * DECAY + n,
            b * DECAY + n * row.running,
            t * DECAY + n * row.step_seconds,
        )
        return StepTimes({**self.bins, index: updated})

    def points(self) -> list[tuple[float, float]]:
        """Return (B, T) pairs, ascending in B."""
        return sorted((b / w, t / w) for w, b, t in self.bins.values() if w > 0)

    def at(self, running: float) -> float | None:
        """Return T at a load, in seconds: piecewise linear, None outside what was measured."""
        points = self.points()
        if not points:
            return None
        if len(points) == 1:
            b, t = points[0]
            return t if 1 / REACH <= running / b <= REACH else None
        if running <= points[0][0]:
            # Small batches are bound by memory: the step takes the same. Not so from far above.
            near = running >= points[0][0] / REACH or points[0][0] <= MEMORY_BOUND
            return points[0][1] if near else None
        if running > points[-1][0] * REACH:
            return None
        for (b0, t0), (b1, t1) in pairwise(points):
            if running <= b1 or (b1, t1) == points[-1]:
                return t0 + (t1 - t0) * (running - b0) / (b1 - b0)
        return None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with a 95% interval and the windows it rests on."""

    value: float
    low: float
    high: float
    windows: int


def speedup(rows: Sequence[SpeedRow], reference: StepTimes) -> Estimate | None:
    """Return measured speed over the speed without speculation at the same loads.

    Ratio estimator: sum of T0(B_i) tokens_i over sum of request-step seconds_i; its interval from
    the window-to-window residuals plus the error of the table. None when fewer than three windows
    have a load at which T(B, 0) is known.
    """
    pairs = []
    for row in rows:
        base = reference.at(row.running)
        if base is not None:
            pairs.append((base * row.tokens, row.step_seconds * row.request_steps))
    n = len(pairs)
    if n < 3:
        return None
    top = sum(a for a, _ in pairs)
    bottom = sum(b for _, b in pairs)
    ratio = top / bottom
    residuals = sum((a - ratio * b) ** 2 for a, b in pairs) * n / (n - 1)
    relative = math.hypot(math.sqrt(residuals) / top, TABLE_ERROR)
    # 2.2 instead of 1.96: few windows, and neighbours share requests.
    margin = 2.2 * relative * ratio
    return Estimate(ratio, ratio - margin, ratio + margin, n)


def tokens_per_step(rows: Sequence[SpeedRow]) -> Estimate | None:
    """Return L, tokens per request and step, with its interval; None below three windows."""
    n = len(rows)
    if n < 3:
        return None
    top = sum(r.tokens for r in rows)
    bottom = sum(r.request_steps for r in rows)
    ratio = top / bottom
    residuals = sum((r.tokens - ratio * r.request_steps) ** 2 for r in rows) * n / (n - 1)
    margin = 2.2 * math.sqrt(residuals) / bottom
    return Estimate(ratio, ratio - margin, ratio + margin, n)


@dataclass(frozen=True, slots=True)
class Operating:
    """The operating point that predictions start from, over recent windows.

    Attributes:
        running: Mean load B.
        tokens_per_step: L measured.
        step_seconds: T(B, K) measured at those loads.
        num_speculative_tokens: K in force; 0 when speculation is off.
        position_acceptance: S_j = A_j / D per position, or empty.
        coverage: Share of request-steps that had a draft.
    """

    running: float
    tokens_per_step: float
    step_seconds: float
    num_speculative_tokens: int
    position_acceptance: tuple[float, ...]
    coverage: float


def operating_point(
    rows: Sequence[SpeedRow],
    num_speculative_tokens: int,
    drafts: float,
    per_position: Sequence[float],
) -> Operating | None:
    """Summarise recent windows; None without any."""
    steps = sum(r.request_steps for r in rows)
    if steps <= 0:
        return None
    return Operating(
        running=sum(r.running * r.request_steps for r in rows) / steps,
        tokens_per_step=sum(r.tokens for r in rows) / steps,
        step_seconds=sum(r.step_seconds * r.request_steps for r in rows) / steps,
        num_speculative_tokens=num_speculative_tokens,
        position_acceptance=tuple(a / drafts for a in per_position) if drafts > 0 else (),
        coverage=min(1.0, drafts / steps),
    )


def predicted_speedup(point: Operating, reference: StepTimes, k: int) -> float | None:
    """Return the speedup at `k` tokens per draft, `k` no more than the K in force.

    L is exact for fewer tokens (1 + coverage x sum of S_j up to k); T(B, k) is a straight line
    between T(B, 0) and T(B, K). None when something it needs was not measured.
    """
    base = reference.at(point.running)
    full = point.num_speculative_tokens
    if base is None or not 0 <= k <= full or (k and len(point.position_acceptance) < k):
        return None
    if k == 0:
        return 1.0
    length = 1.0 + point.coverage * sum(point.position_acceptance[:k])
    seconds = base + (point.step_seconds - base) * k / full
    return length * base / seconds


def best_lower_k(point: Operating, reference: StepTimes) -> tuple[int, float] | None:
    """Return (k, predicted speedup) of the best k in 1..K-1; ties go to the larger."""
    best: tuple[int, float] | None = None
    for k in range(1, point.num_speculative_tokens):
        value = predicted_speedup(point, reference, k)
        if value is not None and (best is None or value >= best[1]):
            best = (k, value)
    return best


def break_even_acceptance(overhead: float, num_speculative_tokens: int) -> float:
    """Return the acceptance rate at which speculation neither gains nor loses: omega / K."""
    return overhead / num_speculative_tokens


def overhead_from(mean_length: float, measured_speedup: float) -> float:
    """Return omega from a mean acceptance length and the speedup measured with it."""
    return mean_length / measured_speedup - 1.0


def speedup_at(acceptance: float, num_speculative_tokens: int, omega: float) -> float:
    """Return the speedup at an acceptance rate: (1 + K alpha) / (1 + omega)."""
    return (1.0 + num_speculative_tokens * acceptance) / (1.0 + omega)


def overhead(point: Operating, reference: StepTimes) -> float | None:
    """Return omega = T(B, K) / T(B, 0) - 1 at the operating point, or None."""
    base = reference.at(point.running)
    return None if base is None else point.step_seconds / base - 1.0


def gain_between(before: Estimate, after: Estimate) -> Estimate:
    """Return after / before - 1 with an interval (independent errors, delta method)."""
    ratio = after.value / before.value
    relative = math.hypot(
        (after.high - after.low) / (2 * after.value),
        (before.high - before.low) / (2 * before.value),
    )
    return Estimate(
        ratio - 1,
        ratio * (1 - relative) - 1,
        ratio * (1 + relative) - 1,
        min(before.windows, after.windows),
    )


def cost_per_million_tokens(
    dollars_per_gpu_hour: float, gpus: float, tokens_per_second: float
) -> float | None:
    """Return dollars per million output tokens of the whole server; None without tokens."""
    if tokens_per_second <= 0:
        return None
    return dollars_per_gpu_hour * gpus / 3600.0 / tokens_per_second * 1e6


def dollars_per_hour_gained(dollars_per_gpu_hour: float, gpus: float, speed: float) -> float:
    """Return dollars an hour saved (negative: lost) because of speculation.

    The same tokens without speculation would take `speed` times the GPU time.
    """
    return dollars_per_gpu_hour * gpus * (speed - 1.0)


def merge_rows(rows: Iterable[SpeedRow]) -> SpeedRow | None:
    """Return one row for several replicas' windows of the same time (loads are averaged)."""
    listed = list(rows)
    steps = sum(r.request_steps for r in listed)
    if not listed or steps <= 0:
        return None
    return SpeedRow(
        max(r.time for r in listed),
        sum(r.running * r.request_steps for r in listed) / steps,
        sum(r.step_seconds * r.request_steps for r in listed) / steps,
        sum(r.tokens for r in listed),
        steps,
    )
