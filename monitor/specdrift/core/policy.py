"""Facts of a tick -> what is worth doing: candidates with their gain, and the choice among them.

Everything here is a value with a reason: `choose` never performs anything, and the same facts
give the same choice when `specdrift explain` runs them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from specdrift.core.economics import (
    Estimate,
    Operating,
    SpeedRow,
    StepTimes,
    best_lower_k,
)

AS_FOUND = "as-found"
OFF = "off"
LOWER_K = "lower-k"


class Mode(StrEnum):
    """How far specdrift may go."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    ACT = "act"


class WhenUnknown(StrEnum):
    """What act mode does with a rung whose gain was never measured."""

    RECOMMEND = "recommend"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class Rung:
    """One speculative configuration a policy allows.

    Attributes:
        settings: The speculative config; None for "off" and for lower-k (whose K is chosen from
            measured acceptance).
    """

    name: str
    settings: Mapping[str, object] | None = None

    @property
    def changes_method(self) -> bool:
        """Whether this is a rung with a config of its own."""
        return self.settings is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """The policy, in the units of the core (seconds, shares).

    Windows counts (`confirm`, `verify`, `warm_up`) are in scrape intervals. `floor_acts`: crossing
    the floor is reason enough for a trial in act mode.
    """

    mode: Mode = Mode.OBSERVE
    rungs: tuple[Rung, ...] = (Rung(LOWER_K), Rung(OFF))
    when_unknown: WhenUnknown = WhenUnknown.RECOMMEND
    output_check_disabled_because: str | None = None
    floor: float | None = None
    floor_acts: bool = False
    smallest_drop: float = 0.05
    min_gain: float = 0.05
    cooldown: float = 3600.0
    actions_per_day: int = 4
    maintenance_only: tuple[tuple[float, float], ...] = ()
    rollout_timeout: float = 1200.0
    probe_after: float = 1800.0
    max_backoff: float = 86400.0
    scrape_interval: float = 15.0
    confirm: int = 8
    verify: int = 24
    warm_up: int = 4


@dataclass(frozen=True, slots=True)
class ClassView:
    """One class at this tick.

    Attributes:
        acceptance: Recent acceptance; None without traffic.
        draft_tokens: Recent draft tokens, what `acceptance` rests on.
        side: "drop" or "rise" while an alarm stands, else None.
        windows_since_alarm: Windows with traffic after the alarm.
        settled: The level since the alarm has stopped moving.
        alarm_time, change_point: Unix seconds.
    """

    traffic_class: str
    acceptance: float | None = None
    baseline: float | None = None
    draft_tokens: float = 0.0
    side: str | None = None
    cause: str | None = None
    evidence: tuple[str, ...] = ()
    advice: str = ""
    effect: float | None = None
    interval: tuple[float, float] | None = None
    alarm_time: float | None = None
    change_point: float | None = None
    windows_since_alarm: int = 0
    settled: bool = True
    changed_with_deployment: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """What the actuator says about the running workload.

    Attributes:
        status: "ready", "in_progress" or "failed"; "none" where nothing can be acted on.
        seconds: How long the last restart took, None before the first.
    """

    status: str
    reason: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a decision may depend on; stored with it, so that it can be run again.

    Attributes:
        rows: Recent windows' speed in the configuration in force, oldest first.
        reference: T(B, 0) as measured so far.
        point: Operating point over `rows`; None without traffic.
        baseline_length: Tokens per step in the as-found configuration at baseline acceptance.
        as_found_times, present_times: T(B) of the as-found configuration, and of the one in force.
        mix: One sentence about a change of mix, else None.
        in_maintenance: Whether a patch may be made at this hour.
    """

    now: float
    workload: str
    classes: tuple[ClassView, ...]
    rows: tuple[SpeedRow, ...]
    reference: StepTimes
    point: Operating | None
    benefit: Estimate | None
    rollout: Rollout
    baseline_length: float | None = None
    as_found_times: StepTimes = field(default_factory=StepTimes)
    present_times: StepTimes = field(default_factory=StepTimes)
    mix: str | None = None
    in_maintenance: bool = True


@dataclass(frozen=True, slots=True)
class Alternative:
    """One rung looked at: its expected gain over now, and why it was or was not taken."""

    rung: str
    settings: Mapping[str, object] | None
    speedup: float | None
    gain: float | None
    taken: bool
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The rung worth moving to (None: none) and everything that was looked at."""

    rung: Alternative | None
    alternatives: tuple[Alternative, ...]


def choose(
    facts: Facts, rules: Rules, present: str, as_found: Mapping[str, object], barred: Sequence[str]
) -> Choice:
    """Pick the rung with the most expected tokens per second, if it beats `min_gain`.

    A rung whose gain was never measured is only tried when the policy says `trial`, speculation
    as it runs is measured to lose (or cannot be judged at all), and the policy lists it before
    the best rung that *is* known.
    """
    looked = [_expect(facts, rules, rung, present, as_found, barred) for rung in rules.rungs]
    known = [a for a in looked if a.gain is not None and a.why == ""]
    best = max(known, key=lambda a: a.gain or 0.0, default=None)
    if best is not None and (best.gain or 0.0) < rules.min_gain:
        best = None
    loses = facts.benefit is None or facts.benefit.high < 1
    taken = best
    if loses and rules.when_unknown is WhenUnknown.TRIAL:
        for alternative in looked:
            if alternative is best:
                break
            if alternative.speedup is None and alternative.why == "":
                taken = alternative
                break
    return Choice(taken, tuple(_explained(a, taken, rules) for a in looked))


def _expect(
    facts: Facts,
    rules: Rules,
    rung: Rung,
    present: str,
    as_found: Mapping[str, object],
    barred: Sequence[str],
) -> Alternative:
    settings = rung.settings
    why = ""
    speedup: float | None = None
    point = facts.point
    if rung.name == present:
        why = "is in force"
    elif rung.name in barred:
        why = "did not help when it was tried"
    elif rung.name == OFF:
        speedup = 1.0 if facts.benefit is not None else None
    elif rung.name == LOWER_K:
        lower = best_lower_k(point, facts.reference) if point is not None else None
        if lower is not None:
            settings, speedup = {**as_found, "num_speculative_tokens": lower[0]}, lower[1]
        else:
            why = _lower_k_unknown(facts)
    elif rules.output_check_disabled_because is None and _other_method(settings, as_found):
        why = "changes the method and its outputs were not checked"
    gain = None
    if speedup is not None and facts.benefit is not None:
        gain = speedup / facts.benefit.value - 1
    return Alternative(rung.name, settings, speedup, gain, False, why)


def _lower_k_unknown(facts: Facts) -> str:
    if facts.point is None:
        return "there is no traffic to judge by"
    if facts.point.num_speculative_tokens <= 1:
        return "fewer than one token per draft is off"
    return "time per step without speculation is not known at this load"


def _other_method(settings: Mapping[str, object] | None, as_found: Mapping[str, object]) -> bool:
    return settings is not None and settings.get("method") != as_found.get("method")


def _explained(a: Alternative, taken: Alternative | None, rules: Rules) -> Alternative:
    if a is taken:
        why = "its gain is not known: one bounded, verified, undoable trial"
        if a.gain is not None:
            why = f"expected gain {a.gain:+.0%}"
        return Alternative(a.rung, a.settings, a.speedup, a.gain, True, why)
    if a.why:
        return a
    if a.gain is None:
        why = "its gain is not known"
        if rules.when_unknown is WhenUnknown.RECOMMEND:
            why += " and the policy allows no trial (whenBenefitUnknown: recommend)"
        elif taken is not None:
            why += f" and {taken.rung} comes first"
        else:
            why += " and speculation as it runs is not measured to lose"
    elif a.gain < rules.min_gain:
        why = f"expected gain {a.gain:+.0%} is below minGain {rules.min_gain:.0%}"
    elif taken is not None:
        other = taken.gain if taken.gain is not None else None
        why = f"expected gain {a.gain:+.0%}, " + (
            f"less than {taken.rung}'s {other:+.0%}"
            if other is not None
            else f"but the policy lists {taken.rung} first"
        )
    else:
        why = f"expected gain {a.gain:+.0%}"
    return Alternative(a.rung, a.settings, a.speedup, a.gain, False, why)


def predicted_at_baseline(facts: Facts, running: float) -> float | None:
    """Return the speedup of the as-found config at this load if acceptance were the baseline."""
    base, full = facts.reference.at(running), facts.as_found_times.at(running)
    if base is None or full is None or facts.baseline_length is None:
        return None
    return facts.baseline_length * base / full
