"""The API's answers as the page reads them: typed, and forgiving.

Unknown keys are ignored and missing ones are None, so that page and service may be of different
versions. A number that is not finite reads as None: "not known", never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdrift import conventions as names

Row = Mapping[str, Any]


def number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def text(value: object, default: str = "") -> str:
    """Return a text, or the default for anything else."""
    return value if isinstance(value, str) else default


def rows(value: object) -> tuple[Row, ...]:
    """Return the objects of a list, skipping what is none."""
    return tuple(v for v in value if isinstance(v, Mapping)) if isinstance(value, list) else ()


def row(value: object) -> Row:
    """Return an object, empty for anything else."""
    return value if isinstance(value, Mapping) else {}


def pair(value: object) -> tuple[float, float] | None:
    """Return two known numbers, or None."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    low, high = number(value[0]), number(value[1])
    return (low, high) if low is not None and high is not None else None


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list."""
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class ClassState:
    """One traffic class now."""

    name: str
    chart_phase: str
    acceptance: float | None
    baseline: float | None
    side: str | None
    cause: str | None
    evidence: tuple[str, ...]
    advice: str
    effect: float | None
    interval: tuple[float, float] | None
    change_point: float | None
    alarm_time: float | None
    changed_with_deployment: bool
    progress: float | None
    share: float | None

    @classmethod
    def of(cls, r: Row) -> ClassState:
        """Read one class of the state."""
        return cls(
            name=text(r.get("traffic_class"), names.CLASS_DEFAULT),
            chart_phase=text(r.get("chart_phase")),
            acceptance=number(r.get("acceptance")),
            baseline=number(r.get("baseline")),
            side=text(r.get("side")) or None,
            cause=text(r.get("cause")) or None,
            evidence=texts(r.get("evidence")),
            advice=text(r.get("advice")),
            effect=number(r.get("effect")),
            interval=pair(r.get("interval")),
            change_point=number(r.get("change_point")),
            alarm_time=number(r.get("alarm_time")),
            changed_with_deployment=r.get("changed_with_deployment") is True,
            progress=number(r.get("phase_one_progress")),
            share=number(r.get("share")),
        )


@dataclass(frozen=True, slots=True)
class State:
    """The workload now."""

    workload: str
    simulated: bool
    mode: str
    paused: bool
    phase: str
    rung: str
    config_key: str
    engine_state: str
    time: float
    scrape_interval: float
    classes: tuple[ClassState, ...]
    acceptance: float | None
    benefit: float | None
    benefit_interval: tuple[float, float] | None
    break_even: float | None
    running: float | None
    waiting: float | None
    tokens_per_second: float | None
    k: float | None
    next_probe_at: float | None
    decision_kind: str
    decision_time: float | None
    sentence: str
    gpu: str
    gpus: float | None
    gpu_hour: float | None
    cost: float | None
    gained: float | None
    false_alarm_interval: float | None

    @classmethod
    def of(cls, r: Row) -> State:
        """Read the answer of /state."""
        benefit, last, cost = (row(r.get(k)) for k in ("benefit", "last_decision", "cost"))
        return cls(
            workload=text(r.get("workload"), "unnamed workload"),
            simulated=r.get("simulated") is True,
            mode=text(r.get("mode")),
            paused=r.get("paused") is True,
            phase=text(r.get("phase")),
            rung=text(r.get("rung")),
            config_key=text(r.get("config_key")),
            engine_state=text(r.get("engine_state")),
            time=number(r.get("time")) or 0.0,
            scrape_interval=number(r.get("scrape_interval")) or 15.0,
            classes=tuple(ClassState.of(c) for c in rows(r.get("classes"))),
            acceptance=number(r.get("blended_acceptance")),
            benefit=number(benefit.get("value")),
            benefit_interval=pair([benefit.get("low"), benefit.get("high")]),
            break_even=number(r.get("break_even_acceptance")),
            running=number(r.get("running")),
            waiting=number(r.get("waiting")),
            tokens_per_second=number(r.get("tokens_per_second")),
            k=number(r.get("num_speculative_tokens")),
            next_probe_at=number(r.get("next_probe_at")),
            decision_kind=text(last.get("kind")),
            decision_time=number(last.get("time")),
            sentence=text(last.get("sentence")),
            gpu=text(cost.get("gpu")),
            gpus=number(cost.get("gpus")),
            gpu_hour=number(cost.get("dollars_per_gpu_hour")),
            cost=number(cost.get("dollars_per_million_tokens")),
            gained=number(cost.get("dollars_per_hour_gained")),
            false_alarm_interval=number(r.get("false_alarm_interval")),
        )


@dataclass(frozen=True, slots=True)
class ClassPoint:
    """One class in one window."""

    acceptance: float | None
    baseline: float | None
    cusum: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """One window of the time series; latencies in seconds."""

    time: float
    state: str
    rung: str
    running: float | None
    waiting: float | None
    bucket: str | None
    tokens_per_second: float | None
    acceptance: float | None
    speedup: float | None
    tpot_p50: float | None
    tpot_p99: float | None
    ttft_p50: float | None
    ttft_p99: float | None
    cost: float | None
    gained: float | None
    classes: Mapping[str, ClassPoint] = field(default_factory=dict)

    @classmethod
    def of(cls, r: Row) -> Point:
        """Read one point of /series."""
        tpot, ttft = row(r.get("time_per_output_token")), row(r.get("time_to_first_token"))
        return cls(
            time=number(r.get("time")) or 0.0,
            state=text(r.get("state")),
            rung=text(r.get("rung")),
            running=number(r.get("running")),
            waiting=number(r.get("waiting")),
            bucket=text(r.get("batch_bucket")) or None,
            tokens_per_second=number(r.get("tokens_per_second")),
            acceptance=number(r.get("acceptance")),
            speedup=number(r.get("speedup")),
            tpot_p50=number(tpot.get("p50")),
            tpot_p99=number(tpot.get("p99")),
            ttft_p50=number(ttft.get("p50")),
            ttft_p99=number(ttft.get("p99")),
            cost=number(r.get("dollars_per_million_tokens")),
            gained=number(r.get("dollars_per_hour_gained")),
            classes={
                str(name): ClassPoint(
                    number(row(c).get("acceptance")),
                    number(row(c).get("baseline")),
                    number(row(c).get("cusum")),
                )
                for name, c in row(r.get("classes")).items()
            },
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision."""

    id: int
    time: float
    kind: str
    sentence: str
    rung: str
    traffic_class: str
    cause: str

    @classmethod
    def of(cls, r: Row) -> Decision:
        """Read one decision of /decisions."""
        return cls(
            id=int(number(r.get("id")) or 0),
            time=number(r.get("time")) or 0.0,
            kind=text(r.get("kind")),
            sentence=text(r.get("sentence")),
            rung=text(r.get("rung")),
            traffic_class=text(r.get("traffic_class")),
            cause=text(r.get("cause")),
        )


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm, or (`recovery`) its end."""

    id: int
    time: float
    traffic_class: str
    side: str
    change_point: float | None
    before: float | None
    after: float | None
    effect: float | None
    interval: tuple[float, float] | None
    cause: str
    evidence: tuple[str, ...]
    advice: str
    changed_with_deployment: bool
    recovery: bool

    @classmethod
    def of(cls, r: Row) -> Alarm:
        """Read one alarm of /alarms."""
        return cls(
            id=int(number(r.get("id")) or 0),
            time=number(r.get("time")) or 0.0,
            traffic_class=text(r.get("traffic_class")) or "all traffic",
            side=text(r.get("side")),
            change_point=number(r.get("change_point")),
            before=number(r.get("level_before")),
            after=number(r.get("level_after")),
            effect=number(r.get("effect")),
            interval=pair(r.get("interval")),
            cause=text(r.get("cause")),
            evidence=texts(r.get("evidence")),
            advice=text(r.get("advice")),
            changed_with_deployment=r.get("changed_with_deployment") is True,
            recovery=r.get("recovery") is True,
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision run again from its stored inputs."""

    lines: tuple[str, ...]
    identical: bool | None
    differences: tuple[str, ...] = ()
