"""Facts of a tick, built from what a test wants to be true: speeds, drifts, loads."""

from __future__ import annotations

from dataclasses import replace

from specdrift.core.economics import (
    Estimate,
    Operating,
    SpeedRow,
    StepTimes,
    operating_point,
    speedup,
)
from specdrift.core.policy import ClassView, Facts, Mode, Rollout, Rules, Rung, WhenUnknown

AS_FOUND_CONFIG = {"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
PLAIN_STEP = 0.010
SPEC_STEP = 0.022
LOAD = 8.0

RULES = Rules(
    mode=Mode.ACT,
    rungs=(Rung("off"),),
    when_unknown=WhenUnknown.RECOMMEND,
    floor=None,
    cooldown=60.0,
    actions_per_day=4,
    rollout_timeout=100.0,
    probe_after=120.0,
    max_backoff=1000.0,
    scrape_interval=1.0,
)


def table(step: float = PLAIN_STEP, load: float = LOAD) -> StepTimes:
    """T(B) measured at one load."""
    return StepTimes().add(SpeedRow(0.0, load, step, 1000.0, 1000.0))


def rows(
    length: float, step: float, *, end: float, count: int = 20, load: float = LOAD
) -> tuple[SpeedRow, ...]:
    """`count` windows of one second up to `end`, with a little spread in both factors."""
    made = []
    for i in range(count):
        wiggle = 1 + 0.004 * (-1) ** i
        made.append(
            SpeedRow(end - count + 1 + i, load, step / wiggle, 500 * length * wiggle, 500.0)
        )
    return tuple(made)


def point(seen: tuple[SpeedRow, ...], k: int, positions: tuple[float, ...]) -> Operating | None:
    """The operating point of those windows, every step drafted."""
    steps = sum(r.request_steps for r in seen)
    return operating_point(seen, k, steps, tuple(s * steps for s in positions))


def drop(
    *, name: str = "code", since: float = 0.0, windows: int = 20, effect: float = -0.3
) -> ClassView:
    """A class with a standing alarm."""
    return ClassView(
        name,
        acceptance=0.6 + effect,
        baseline=0.6,
        side="drop",
        cause="content_drift",
        evidence=("no restart",),
        advice="retrain the draft",
        effect=effect,
        interval=(effect - 0.03, effect + 0.03),
        alarm_time=since,
        change_point=since - 5.0,
        windows_since_alarm=windows,
    )


QUIET = ClassView("chat", acceptance=0.6, baseline=0.6)


def facts(
    now: float,
    *,
    length: float = 2.6,
    step: float = SPEC_STEP,
    known: bool = True,
    speculating: bool = True,
    classes: tuple[ClassView, ...] = (QUIET,),
    rollout: str = "ready",
    reason: str = "",
    count: int = 20,
) -> Facts:
    """A tick at `now` with recent windows of this many tokens a step and this step time."""
    seen = rows(length, step, end=now, count=count)
    reference = table() if known else StepTimes()
    positions = tuple(max(0.0, length - 1) * w for w in (0.6, 0.3, 0.1))
    return Facts(
        now=now,
        workload="llama",
        classes=classes,
        rows=seen,
        reference=reference,
        point=point(seen, 3 if speculating else 0, positions if speculating else ()),
        benefit=speedup(seen[-12:], reference) if speculating else None,
        rollout=Rollout(rollout, reason, 10.0),
        baseline_length=2.6,
        as_found_times=table(SPEC_STEP),
        present_times=table(step),
    )


def losing(now: float, **more: object) -> Facts:
    """Speculation measured to run at 0.73 of plain decoding."""
    return facts(now, length=1.6, **more)  # type: ignore[arg-type]


def idle(made: Facts) -> Facts:
    """The same tick without any traffic."""
    return replace(made, rows=(), point=None, benefit=None)


__all__ = [
    "AS_FOUND_CONFIG",
    "LOAD",
    "NGRAM",
    "PLAIN_STEP",
    "QUIET",
    "RULES",
    "SPEC_STEP",
    "Estimate",
    "drop",
    "facts",
    "idle",
    "losing",
    "rows",
    "table",
]
