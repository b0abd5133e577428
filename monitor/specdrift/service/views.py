"""The documents that the loop writes for people and programs, and the API hands out.

One shape for the store, the API and the dashboard. Every number may be null, which means "not
known"; it is never NaN or infinite. Times are unix seconds, ratios 0 to 1, gains 0.05 for +5%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from specdrift.core.detector import ChartPhase, Side
from specdrift.core.economics import Estimate
from specdrift.core.loop import Decision, Kind, Phase
from specdrift.core.pipeline import AlarmRecord
from specdrift.core.policy import Mode
from specdrift.core.windows import WindowState
from specdrift.service.explain import Explanation


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_known)]


class View(BaseModel):
    """Base of all documents: complete, unknown keys refused, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Document(View):
    """What the loop writes: a newer specdrift may have added fields, which are handed on."""

    model_config = ConfigDict(extra="allow", frozen=True)


class EstimateView(View):
    """A number with its 95% interval and the windows it rests on."""

    value: Number
    low: Number
    high: Number
    windows: int

    @classmethod
    def of(cls, estimate: Estimate | None) -> EstimateView | None:
        """Return the view of an estimate; None stays None."""
        if estimate is None:
            return None
        return cls(
            value=estimate.value, low=estimate.low, high=estimate.high, windows=estimate.windows
        )


class CusumView(View):
    """Both sides of the bank of statistics, one value per drop of `StateView.drops`."""

    drop: tuple[Number, ...] = ()
    rise: tuple[Number, ...] = ()


class ClassStateView(Document):
    """One traffic class as its chart sees it now.

    `side` is null while no alarm stands; the fields from `cause` to `changed_with_deployment`
    belong to the alarm. `share` is the class's share of recent draft tokens.
    """

    traffic_class: str
    chart_phase: ChartPhase
    acceptance: Number = None
    baseline: Number = None
    standard_error: Number = None
    side: Side | None = None
    cause: str | None = None
    evidence: tuple[str, ...] = ()
    advice: str = ""
    effect: Number = None
    interval: tuple[Number, Number] | None = None
    change_point: Number = None
    alarm_time: Number = None
    changed_with_deployment: bool = False
    cusum: CusumView = CusumView()
    decision_intervals: tuple[Number, ...] = ()
    phase_one_progress: Number = None
    share: Number = None


class LastDecisionView(View):
    """The newest decision: when, what kind, and its sentence."""

    time: float
    kind: Kind
    sentence: str


class CostShareView(Document):
    """One class's or method's cost, on time with a request running ("busy") or all ("billed").

    `share` is of request-steps (a method's: of time); dollars per hour are those of an hour of
    that basis, `dollars_per_hour_gained` what speculation saves in it (negative: wastes).
    """

    name: str
    basis: Literal["busy", "billed"]
    share: Number = None
    dollars_per_million_tokens: Number = None
    dollars_per_hour: Number = None
    dollars_per_hour_gained: Number = None


class ApiPriceView(Document):
    """What a hosted model costs, in dollars per million tokens, with date and source."""

    name: str
    input: Number = None
    output: Number = None
    cached_input: Number = None
    read: str = ""
    source: str = ""
    verified: bool = False
    nearest: str | None = None
    note: str = ""


class CostView(Document):
    """What the hardware costs, and what speculation saves (negative: wastes) of it.

    `total`, `classes` (in the configuration in force) and `methods` are over about the last hour,
    each on both bases; the numbers beside `dollars_per_gpu_hour` are of the last few windows.
    `unknown_because` says why there is no price.
    """

    gpu: str | None = None
    gpus: Number = None
    dollars_per_gpu_hour: Number = None
    dollars_per_million_tokens: Number = None
    dollars_per_hour_gained: Number = None
    price_source: str | None = None
    price_verified: bool = True
    unknown_because: str | None = None
    busy_share: Number = None
    total: tuple[CostShareView, ...] = ()
    classes: tuple[CostShareView, ...] = ()
    methods: tuple[CostShareView, ...] = ()
    apis: tuple[ApiPriceView, ...] = ()


class StateView(Document):
    """Everything about one workload now; written every tick as document "state".

    `version` is specdrift's own. `rung` and `settings` are what should be in force, `config_key`
    names what is; `drops` are the changes of acceptance that the bank of statistics looks for, in
    the order of each class's `cusum` and `decision_intervals`.
    """

    version: str
    workload: str
    simulated: bool
    mode: Mode
    paused: bool = False
    phase: Phase
    rung: str
    settings: Mapping[str, object] | None = None
    config_key: str | None = None
    engine_state: WindowState
    engine_version: str | None = None
    time: float
    scrape_interval: float
    classes: tuple[ClassStateView, ...] = ()
    drops: tuple[float, ...] = ()
    blended_acceptance: Number = None
    benefit: EstimateView | None = None
    break_even_acceptance: Number = None
    running: Number = None
    waiting: Number = None
    tokens_per_second: Number = None
    step_seconds: Number = None
    num_speculative_tokens: int | None = None
    next_probe_at: Number = None
    last_decision: LastDecisionView | None = None
    cost: CostView | None = None
    false_alarm_interval: Number = None


class TimePerOutputTokenView(View):
    """Seconds per output token of one window."""

    mean: Number = None
    p50: Number = None
    p99: Number = None


class TimeToFirstTokenView(View):
    """Seconds to the first token of one window."""

    mean: Number = None
    p50: Number = None
    p99: Number = None


class ClassPointView(Document):
    """One class in one window; `cusum` is the largest statistic / decision interval."""

    acceptance: Number = None
    draft_tokens: Number = None
    drafts: Number = None
    output_tokens: Number = None
    baseline: Number = None
    cusum: Number = None
    dollars_per_million_tokens: Number = None


class PointView(Document):
    """One window of the time series."""

    time: float
    state: WindowState
    rung: str
    phase: Phase | None = None
    running: Number = None
    waiting: Number = None
    batch_bucket: str | None = None
    step_seconds: Number = None
    tokens_per_second: Number = None
    acceptance: Number = None
    mean_acceptance_length: Number = None
    speedup: Number = None
    time_per_output_token: TimePerOutputTokenView | None = None
    time_to_first_token: TimeToFirstTokenView | None = None
    dollars_per_million_tokens: Number = None
    dollars_per_hour_gained: Number = None
    classes: Mapping[str, ClassPointView] = {}


class AlarmView(View):
    """One alarm as it was raised (`recovery`: acceptance came back after one)."""

    id: int
    time: float
    traffic_class: str
    config_key: str
    side: Side
    change_point: float
    level_before: Number
    level_after: Number
    effect: Number
    interval: tuple[Number, Number]
    cause: str
    evidence: tuple[str, ...] = ()
    advice: str = ""
    changed_with_deployment: bool = False
    recovery: bool = False

    @classmethod
    def of(cls, number: int, record: AlarmRecord) -> AlarmView:
        """Return the view of an alarm of the core under its number in the store."""
        signal = record.signal
        return cls(
            id=number,
            time=signal.time,
            traffic_class=record.traffic_class,
            config_key=record.config_key,
            side=signal.side,
            change_point=signal.change_point,
            level_before=signal.level_before,
            level_after=signal.level_after,
            effect=signal.effect,
            interval=signal.interval,
            cause=record.cause,
            evidence=record.evidence,
            advice=record.advice,
            changed_with_deployment=signal.changed_with_deployment,
            recovery=signal.recovery,
        )


class AlternativeView(View):
    """One rung that was looked at: its expected gain over now, and why it was or was not taken."""

    rung: str
    settings: Mapping[str, object] | None = None
    speedup: Number = None
    gain: Number = None
    taken: bool
    why: str


class DecisionView(View):
    """One decision: what, why in one sentence, and all that was looked at."""

    id: int
    time: float
    kind: Kind
    sentence: str
    rung: str | None = None
    settings: Mapping[str, object] | None = None
    traffic_class: str | None = None
    cause: str | None = None
    gain: EstimateView | None = None
    alternatives: tuple[AlternativeView, ...] = ()

    @classmethod
    def of(cls, number: int, decision: Decision) -> DecisionView:
        """Return the view of a decision of the core under its number in the store."""
        return cls(
            id=number,
            time=decision.time,
            kind=decision.kind,
            sentence=decision.sentence,
            rung=decision.rung,
            settings=decision.settings,
            traffic_class=decision.traffic_class,
            cause=decision.cause,
            gain=EstimateView.of(decision.gain),
            alternatives=tuple(
                AlternativeView(
                    rung=a.rung,
                    settings=a.settings,
                    speedup=a.speedup,
                    gain=a.gain,
                    taken=a.taken,
                    why=a.why,
                )
                for a in decision.alternatives
            ),
        )


class ExplanationView(View):
    """A decision run again from its stored inputs, and the reasons in plain lines."""

    decision: DecisionView
    identical: bool
    differences: tuple[str, ...]
    lines: tuple[str, ...]

    @classmethod
    def of(cls, number: int, explanation: Explanation) -> ExplanationView:
        """Return the view of an explanation of the decision of that number."""
        return cls(
            decision=DecisionView.of(number, explanation.decision),
            identical=explanation.identical,
            differences=explanation.differences,
            lines=explanation.lines,
        )


class Problem(View):
    """One sentence: what, where, why, what to try."""

    error: str


class OverrideView(View):
    """What a person set through the API, over the policy; document "override"."""

    mode: Mode | None = None
    paused: bool = False


DOCUMENT_STATE = "state"
DOCUMENT_OVERRIDE = "override"
