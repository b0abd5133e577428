"""What one life of a simulated engine has counted: vLLM's own counters and the tap's."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specdrift.conventions import BATCH_BUCKET_BOUNDS

if TYPE_CHECKING:
    from specdrift.sim.traffic import SimulatedRequest

MAX_CLASSES = 18
"""Rows of the per-class arrays: 16 named classes, `default` and `other`."""

Counts = NDArray[np.int64]
Sums = NDArray[np.float64]

REQUEST_BOUNDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
FIRST_TOKEN_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_TIME_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)  # fmt: skip
ITERATION_BOUNDS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
)  # fmt: skip
# The tap's bounds resolve 1 to 10 ms, and 10 to 50 ms well enough for a mean and a p99.
TAP_STEP_BOUNDS = (
    0.001, 0.0015, 0.002, 0.0025, 0.003, 0.0035, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009, 0.01,
    0.012, 0.014, 0.016, 0.018, 0.02, 0.0225, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.08, 0.1,
    0.15, 0.2, 0.3, 0.5, 1.0,
)  # fmt: skip
TAP_LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5,
    2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0,
)  # fmt: skip


def token_count_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return vLLM's 1-2-5 series of token counts up to the model length."""
    bounds: list[float] = []
    power = 1
    while power <= max_model_len:
        bounds += [float(m * power) for m in (1, 2, 5) if m * power <= max_model_len]
        power *= 10
    return tuple(bounds)


def batch_bucket(running: float) -> int:
    """Return the index into BATCH_BUCKETS for a number of running requests."""
    return bisect_left(BATCH_BUCKET_BOUNDS, running)


class Histogram:
    """Counts by upper bound (not cumulative) and the sum, as one Prometheus histogram."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Add `times` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Return the number of observations."""
        return sum(self.counts)


@dataclass
class Finished:
    """Sums over finished requests that had drafts: the sufficient statistics of one class and K."""

    requests: int = 0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    accepted_squared: float = 0.0
    product: float = 0.0
    draft_squared: float = 0.0

    def add(self, draft_tokens: float, accepted: float) -> None:
        """Add one request's draft tokens and accepted tokens."""
        self.requests += 1
        self.draft_tokens += draft_tokens
        self.accepted += accepted
        self.accepted_squared += accepted * accepted
        self.product += draft_tokens * accepted
        self.draft_squared += draft_tokens * draft_tokens


@dataclass
class SpecCounts:
    """Drafts of one K and batch bucket: `by_accepted[class, n]` drafts had n tokens accepted."""

    by_accepted: Counts

    @property
    def drafts(self) -> Counts:
        """Return drafts by class."""
        drafts: Counts = self.by_accepted.sum(axis=1)
        return drafts

    @property
    def accepted(self) -> Counts:
        """Return accepted draft tokens by class."""
        accepted: Counts = self.by_accepted @ np.arange(self.by_accepted.shape[1])
        return accepted

    @property
    def per_position(self) -> Counts:
        """Return `[class, position]` accepted draft tokens, position 0 first."""
        at_least: Counts = self.by_accepted[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
        return at_least


@dataclass(frozen=True)
class RequestNumbers:
    """What the batch knows of a request when it ends.

    Args:
        num_speculative_tokens: Configured K.
        mean_running: Time-weighted mean of running requests while it ran.
        draft_tokens: Draft tokens verified for it.
        accepted_tokens: Of them, those accepted.
    """

    num_speculative_tokens: int
    mean_running: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0


def _class_counts() -> Counts:
    return np.zeros(MAX_CLASSES, dtype=np.int64)


@dataclass
class EngineStatistics:
    """All counters of one engine life; everything starts at zero when the engine restarts."""

    max_model_len: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    iteration: Histogram = field(default_factory=lambda: Histogram(ITERATION_BOUNDS))
    inter_token: Histogram = field(default_factory=lambda: Histogram(TOKEN_TIME_BOUNDS))
    per_token: Histogram = field(default_factory=lambda: Histogram(TOKEN_TIME_BOUNDS))
    first_token: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_BOUNDS))
    end_to_end: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    queue: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    inference: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    prefill: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    decode: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    success: dict[str, int] = field(default_factory=dict)
    spec: dict[tuple[int, int], SpecCounts] = field(default_factory=dict)
    output_tokens: Counts = field(default_factory=_class_counts)
    request_steps: dict[int, Counts] = field(default_factory=dict)
    request_step_seconds: dict[int, Sums] = field(default_factory=dict)
    step_seconds: dict[tuple[int, int], Histogram] = field(default_factory=dict)
    outcomes: dict[tuple[int, str], int] = field(default_factory=dict)
    finished: dict[tuple[int, int], Finished] = field(default_factory=dict)
    tap_per_token: dict[tuple[int, int], Histogram] = field(default_factory=dict)
    tap_first_token: dict[tuple[int, int], Histogram] = field(default_factory=dict)
    tap_queue: dict[tuple[int, int], Histogram] = field(default_factory=dict)
    tap_request: dict[tuple[int, int], Histogram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bounds = token_count_bounds(self.max_model_len)
        self.request_prompt = Histogram(bounds)
        self.request_generation = Histogram(bounds)
        self.request_max_generation = Histogram(bounds)
        self.request_max_tokens = Histogram(bounds)
        self.request_computed = Histogram(bounds)
        self.request_n = Histogram((1.0, 2.0, 5.0, 10.0, 20.0))
        self.preemptions = Histogram((1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0))

    def spec_counts(self, k: int, bucket: int) -> SpecCounts:
        """Return the draft counts of one K and batch bucket, made on first use."""
        counts = self.spec.get((k, bucket))
        if counts is None:
            counts = SpecCounts(np.zeros((MAX_CLASSES, k + 1), dtype=np.int64))
            self.spec[(k, bucket)] = counts
        return counts

    def step(self, bucket: int, k: int, seconds: float, running: Counts) -> None:
        """Count one engine step: its seconds, and one request-step per running request."""
        histogram = self.step_seconds.get((bucket, k))
        if histogram is None:
            histogram = self.step_seconds[(bucket, k)] = Histogram(TAP_STEP_BOUNDS)
        histogram.observe(seconds)
        if bucket not in self.request_steps:
            self.request_steps[bucket] = _class_counts()
            self.request_step_seconds[bucket] = np.zeros(MAX_CLASSES)
        self.request_steps[bucket] += running
        self.request_step_seconds[bucket] += running * seconds

    def admit(self, request: SimulatedRequest) -> None:
        """Count a request's queue time by the running requests at its admission."""
        key = (request.class_index, batch_bucket(request.running_at_admission))
        waited = request.admitted - request.arrival
        _observe(self.tap_queue, key, waited, TAP_LATENCY_BOUNDS)

    def first(self, request: SimulatedRequest) -> None:
        """Count a prefilled prompt and its first token."""
        self.prompt_tokens += request.prompt_tokens
        self.cached_tokens += request.cached_tokens
        seconds = request.first_token - request.arrival
        self.first_token.observe(seconds)
        key = (request.class_index, batch_bucket(request.running_at_admission))
        _observe(self.tap_first_token, key, seconds, TAP_LATENCY_BOUNDS)

    def finish(self, request: SimulatedRequest, numbers: RequestNumbers) -> None:
        """Count a request that ended; of an aborted one only outcome and acceptance."""
        self._count_outcome(request, numbers)
        if request.finished_reason == "abort":
            return
        end_to_end = request.last_token - request.arrival
        decode = request.last_token - request.first_token
        per_token = decode / (request.output_tokens - 1) if request.output_tokens > 1 else 0.0
        self.end_to_end.observe(end_to_end)
        self.queue.observe(request.admitted - request.arrival)
        self.inference.observe(request.last_token - request.admitted)
        self.prefill.observe(request.first_token - request.admitted)
        self.decode.observe(decode)
        self.per_token.observe(per_token)
        self.request_prompt.observe(request.prompt_tokens)
        self.request_generation.observe(request.output_tokens)
        self.request_max_generation.observe(request.output_tokens)
        self.request_max_tokens.observe(request.max_tokens)
        self.request_computed.observe(request.prompt_tokens - request.cached_tokens)
        self.request_n.observe(1)
        self.preemptions.observe(0)
        key = (request.class_index, batch_bucket(numbers.mean_running))
        _observe(self.tap_request, key, end_to_end, TAP_LATENCY_BOUNDS)
        if request.output_tokens > 1:
            _observe(self.tap_per_token, key, per_token, TAP_STEP_BOUNDS)

    def _count_outcome(self, request: SimulatedRequest, numbers: RequestNumbers) -> None:
        reason, index = request.finished_reason, request.class_index
        self.success[reason] = self.success.get(reason, 0) + 1
        outcome = "success" if reason in ("stop", "length") else reason
        self.outcomes[(index, outcome)] = self.outcomes.get((index, outcome), 0) + 1
        if numbers.draft_tokens > 0:
            key = (index, numbers.num_speculative_tokens)
            self.finished.setdefault(key, Finished()).add(
                numbers.draft_tokens, numbers.accepted_tokens
            )


def _observe(
    histograms: dict[tuple[int, int], Histogram],
    key: tuple[int, int],
    value: float,
    bounds: Sequence[float],
) -> None:
    histogram = histograms.get(key)
    if histogram is None:
        histogram = histograms[key] = Histogram(bounds)
    histogram.observe(value)
