"""What one scrape of one engine says, in engine-neutral words.

A counter that the page does not carry is `None`, never 0: "absent" and "nothing happened yet"
are different facts. All counters are cumulative since the engine process started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of an exposition: name, labels and value (which may be NaN or infinite)."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative Prometheus histogram.

    Attributes:
        bounds: Upper bounds in seconds, ascending, the last one infinite.
        counts: Cumulative counts, one per bound.
        sum: Sum of all observed values, in seconds.
        count: Number of observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float
    count: float


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """Speculative-decoding counters.

    Attributes:
        drafts: Verify steps with at least one proposed token, one per request and step.
        draft_tokens: Tokens proposed.
        accepted_tokens: Tokens accepted, bonus token excluded.
        accepted_per_position: Drafts whose position j (0-based) was accepted; its length is the
            engine's num_speculative_tokens. Empty where the page does not tell.
    """

    drafts: float
    draft_tokens: float
    accepted_tokens: float
    accepted_per_position: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassCounters:
    """Speculative counters of one traffic class at one K, as the tap publishes them.

    Attributes:
        num_speculative_tokens: K in force when these were counted; None where unknown.
    """

    traffic_class: str
    num_speculative_tokens: int | None
    spec: SpecCounters


@dataclass(frozen=True, slots=True)
class FinishedStatistics:
    """Sums over finished requests of one class and K: the statistics of per-request acceptance.

    Attributes:
        requests: Finished (or aborted) requests that drafted at all.
        draft_tokens: Sum of D, the draft tokens of a request.
        accepted_tokens: Sum of A, the accepted tokens of a request.
        accepted_squared: Sum of A squared.
        product: Sum of D times A.
        draft_squared: Sum of D squared.
    """

    traffic_class: str
    num_speculative_tokens: int | None
    requests: float
    draft_tokens: float
    accepted_tokens: float
    accepted_squared: float
    product: float
    draft_squared: float


@dataclass(frozen=True, slots=True)
class ClassLatency:
    """One latency histogram of one class in one batch bucket, as the tap publishes it.

    Attributes:
        traffic_class: The class; "" where the series has none (step time).
        batch_bucket: One of `conventions.BATCH_BUCKETS`; "" where the series has none.
        metric: Metric name without suffix, one of the `conventions.TAP_*` histograms.
        num_speculative_tokens: K in force, on step-level series; None elsewhere.
    """

    traffic_class: str
    batch_bucket: str
    metric: str
    histogram: Histogram
    num_speculative_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ClassSteps:
    """Request-steps of one class in one batch bucket, and their seconds."""

    traffic_class: str
    batch_bucket: str
    request_steps: float
    request_step_seconds: float


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """One (model_name, engine) pair on one page.

    Attributes:
        engine_kind: "vllm", "sglang" or "trtllm".
        spec: None when the page has no speculative series (speculation is off), or when it has
            but they cannot be used; `damaged` names them then.
        steps: Engine steps (vLLM: count of iteration_tokens_total).
        request_steps: Running requests summed over decode steps (vLLM: count of
            inter_token_latency_seconds, which is per step and request, not per token).
        request_step_seconds: Step time summed likewise (vLLM: its sum), in seconds.
        first_tokens: Requests that got their first token (vLLM: count of TTFT).
        process_start: Unix time the engine process started; a change is a restart.
        class_latency: The tap's latency histograms, by class and batch bucket.
        class_steps: The tap's request-steps, by class and batch bucket.
        class_finished: The tap's statistics of finished requests, by class and K.
        class_requests: The tap's finished requests by class, whatever their outcome.
        missing: Metric names without a usable value here, with no guess in their place.
        damaged: The part of `missing` that is on the page, but with values that cannot be used
            (NaN, negative, a histogram that is not cumulative, part of a set absent).
    """

    engine_kind: str
    model_name: str
    engine: str
    process_start: float | None = None
    spec: SpecCounters | None = None
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    requests_finished: float | None = None
    first_tokens: float | None = None
    steps: float | None = None
    request_steps: float | None = None
    request_step_seconds: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    time_per_output_token: Histogram | None = None
    time_to_first_token: Histogram | None = None
    queue_time: Histogram | None = None
    request_seconds: Histogram | None = None
    step_seconds: Histogram | None = None
    by_class: tuple[ClassCounters, ...] = ()
    class_output_tokens: Mapping[str, float] = field(default_factory=dict)
    class_latency: tuple[ClassLatency, ...] = ()
    class_steps: tuple[ClassSteps, ...] = ()
    class_finished: tuple[FinishedStatistics, ...] = ()
    class_requests: Mapping[str, float] = field(default_factory=dict)
    method: str | None = None
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
