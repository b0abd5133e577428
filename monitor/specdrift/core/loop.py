"""The life of an action: steady -> rollout -> verifying -> standing -> probe -> steady.

`advance(loop, facts, rules)` is pure. The loop state says which rung should be in force; the
shell makes it so (level-triggered: asking twice changes nothing), so a crash at any point is
resolved by reading the live configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from specdrift.core import sentences
from specdrift.core.economics import (
    Estimate,
    SpeedRow,
    StepTimes,
    gain_between,
    speedup,
    tokens_per_step,
)
from specdrift.core.policy import (
    AS_FOUND,
    OFF,
    Alternative,
    Choice,
    ClassView,
    Facts,
    Mode,
    Rules,
    WhenUnknown,
    choose,
    predicted_at_baseline,
)

DAY = 86400.0
# Times `confirm` that a young alarm, or a better rung, is waited for.
PATIENCE = 4
# A tick that comes so many scrape intervals after the last one comes after an absence.
ABSENT_WINDOWS = 10
# The floor speaks only for classes with some traffic.
FEWEST_FLOOR_TOKENS = 300.0
# A way back that failed is tried again after so many scrape intervals, doubled up to 16 times.
RETRY_WINDOWS = 20
# Key of the report of a change of mix among what was said.
MIX = "mix"


class Phase(StrEnum):
    """Where the loop is."""

    STEADY = "steady"
    ROLLOUT = "rollout"
    VERIFYING = "verifying"
    STANDING = "standing"


class Purpose(StrEnum):
    """Why the configuration is being changed."""

    ACT = "act"
    UNDO = "undo"
    PROBE = "probe"
    FALL_BACK = "fall_back"


class Kind(StrEnum):
    """What a decision is."""

    HOLD = "hold"
    REPORT = "report"
    RECOMMEND = "recommend"
    ACT = "act"
    VERIFIED = "verified"
    UNDO = "undo"
    PROBE = "probe"
    FALL_BACK = "fall_back"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision: what, why in one sentence, and all that was looked at."""

    time: float
    kind: Kind
    sentence: str
    rung: str | None = None
    settings: Mapping[str, object] | None = None
    traffic_class: str | None = None
    cause: str | None = None
    gain: Estimate | None = None
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopState:
    """What the loop remembers between ticks (and across restarts of specdrift).

    Attributes:
        as_found: The speculative config found at first; never changed by specdrift.
        rung, settings: What should be in force (settings None: speculation off).
        before, before_times: Windows before the action under verification, and the step times of
            the configuration they ran in.
        standing: Speedup of the fallback in force, as verified.
        losing_since: Since when speculation has been measured to lose.
        better_since: Since when a known rung has surely been better.
        barred: Rungs that did not help -> time until which they stay barred.
        actions: Times of configuration changes made (undo and falling back not counted).
        retries: How often a way back has been tried again.
        last_tick: When the loop last ran; a long pause is an absence.
        said: Keys of what was said already, so that one fact gives one sentence.
    """

    as_found: Mapping[str, object] = field(default_factory=dict)
    phase: Phase = Phase.STEADY
    purpose: Purpose | None = None
    rung: str = AS_FOUND
    settings: Mapping[str, object] | None = None
    previous_rung: str = AS_FOUND
    previous_settings: Mapping[str, object] | None = None
    since: float = 0.0
    before: tuple[SpeedRow, ...] = ()
    before_times: StepTimes = field(default_factory=StepTimes)
    losing_since: float | None = None
    better_since: float | None = None
    standing: float | None = None
    probe_at: float | None = None
    probe_wait: float = 0.0
    barred: Mapping[str, float] = field(default_factory=dict)
    actions: tuple[float, ...] = ()
    last_action: float | None = None
    said: tuple[str, ...] = ()
    plan: int = 0
    retries: int = 0
    last_tick: float | None = None


def begin(as_found: Mapping[str, object], now: float) -> LoopState:
    """Return the state of a loop that has just met a workload."""
    return LoopState(as_found=as_found, settings=as_found or None, since=now)


def adopt(
    loop: LoopState, live: Mapping[str, object] | None, now: float, rules: Rules
) -> LoopState:
    """Return the state for a workload met with another config in force than it came with.

    Its history is lost, so the config in force is taken for a standing fallback: nothing is
    changed now, and the original is probed in the usual time.
    """
    if (live or None) == (loop.as_found or None):
        return loop
    return replace(
        loop,
        phase=Phase.STANDING,
        rung=OFF if live is None else "as-running",
        settings=live,
        since=now,
        probe_wait=rules.probe_after,
        probe_at=now + rules.probe_after,
    )


def advance(loop: LoopState, facts: Facts, rules: Rules) -> tuple[LoopState, Decision | None]:
    """Move the loop on by one tick; at most one decision comes out."""
    loop = _after_absence(loop, facts, rules)
    if loop.phase is Phase.ROLLOUT:
        return _rollout(loop, facts, rules)
    if loop.phase is Phase.VERIFYING:
        return _verify(loop, facts, rules)
    if loop.phase is Phase.STANDING:
        return _stand(loop, facts, rules)
    return _steady(loop, facts, rules)


def _after_absence(loop: LoopState, facts: Facts, rules: Rules) -> LoopState:
    """Stop the clocks of a change for as long as nobody was watching."""
    last, loop = loop.last_tick, replace(loop, last_tick=facts.now)
    away = 0.0 if last is None else facts.now - last
    if away > ABSENT_WINDOWS * rules.scrape_interval and loop.phase is not Phase.STEADY:
        loop = replace(loop, since=loop.since + away)
    return loop


def _say(loop: LoopState, key: str, decision: Decision) -> tuple[LoopState, Decision | None]:
    if key in loop.said:
        return loop, None
    return replace(loop, said=(*loop.said, key)[-50:]), decision


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why the loop looks for another rung: what it is about, and a key to say it once by."""

    key: str
    drifted: ClassView | None = None
    floor: bool = False


def _steady(loop: LoopState, facts: Facts, rules: Rules) -> tuple[LoopState, Decision | None]:
    loop, trigger = _trigger(loop, facts, rules)
    if trigger is None:
        return _quiet(loop, facts)
    if any(_is_young(c, facts, rules) for c in facts.classes):
        return loop, None  # an alarm is young: re-estimate on windows after it first
    if trigger.floor:
        asked = WhenUnknown.TRIAL if rules.floor_acts else WhenUnknown.RECOMMEND
        rules = replace(rules, when_unknown=asked)
    choice = choose(facts, rules, loop.rung, loop.as_found, _barred(loop, facts))
    return _take(loop, facts, rules, trigger, choice)


def _trigger(loop: LoopState, facts: Facts, rules: Rules) -> tuple[LoopState, Trigger | None]:
    """Return why to look for another rung now: drift, a loss, the floor, or a better rung."""
    drifted = _confirmed(facts, rules)
    loop, losing = _losing(loop, facts, rules)
    loop, better = _better(loop, facts, rules)
    if drifted is not None:
        return loop, Trigger(f"{drifted.traffic_class}@{drifted.alarm_time}", drifted)
    if losing or better:
        return loop, Trigger("losing" if losing else "better")
    if _below_floor(facts, rules):
        low = sorted(c.traffic_class for c in facts.classes if _low(c, rules))
        return loop, Trigger(f"floor:{','.join(low)}", floor=True)
    return loop, None


def _quiet(loop: LoopState, facts: Facts) -> tuple[LoopState, Decision | None]:
    """Nothing calls for another rung: report a change of mix once, forget what was said else."""
    if facts.mix is None:
        return replace(loop, said=()), None
    loop = replace(loop, said=tuple(s for s in loop.said if s == MIX))
    return _say(loop, MIX, Decision(facts.now, Kind.REPORT, facts.mix, cause="mix_shift"))


def _take(
    loop: LoopState, facts: Facts, rules: Rules, trigger: Trigger, choice: Choice
) -> tuple[LoopState, Decision | None]:
    """Turn a choice into a hold, a recommendation or an action, as the mode and limits allow."""
    drifted, rung = trigger.drifted, choice.rung
    decision = Decision(
        facts.now,
        Kind.HOLD,
        "",
        traffic_class=drifted.traffic_class if drifted else None,
        cause=drifted.cause if drifted else None,
        alternatives=choice.alternatives,
    )
    if rung is None and trigger.floor:
        text = sentences.floor(facts, rules.floor or 0.0, choice)
        return _say(loop, trigger.key, replace(decision, kind=Kind.RECOMMEND, sentence=text))
    if rung is None:
        text = sentences.hold(facts, drifted, choice)
        return _say(loop, f"hold:{trigger.key}", replace(decision, sentence=text))
    decision = replace(decision, rung=rung.rung, settings=rung.settings)
    refusal = _refusal(loop, facts, rules, rung)
    text = sentences.act(facts, drifted, rung, refusal, acts=rules.mode is Mode.ACT)
    if rules.mode is not Mode.ACT or refusal:
        kind = Kind.REPORT if rules.mode is Mode.OBSERVE else Kind.RECOMMEND
        key = f"{kind}:{rung.rung}:{trigger.key}:{refusal.partition(' lasts')[0]}"
        return _say(loop, key, replace(decision, kind=kind, sentence=text))
    moved = _move(loop, facts, rung.rung, rung.settings, Purpose.ACT)
    moved = replace(moved, before=facts.rows[-rules.confirm :], before_times=facts.present_times)
    return moved, replace(decision, kind=Kind.ACT, sentence=text)


def _barred(loop: LoopState, facts: Facts) -> list[str]:
    return [name for name, until in loop.barred.items() if facts.now < until]


def _confirmed(facts: Facts, rules: Rules) -> ClassView | None:
    """Return the class with the largest drop that stood for `confirm` windows and settled."""
    ready = [c for c in facts.classes if _ripe(c, rules) and c.effect is not None]
    return min(ready, key=lambda c: c.effect or 0.0, default=None)


def _ripe(c: ClassView, rules: Rules) -> bool:
    patience = PATIENCE * rules.confirm
    stood = c.windows_since_alarm >= rules.confirm
    return c.side == "drop" and stood and (c.settled or c.windows_since_alarm >= patience)


def _is_young(c: ClassView, facts: Facts, rules: Rules) -> bool:
    """Tell whether to wait for a class whose alarm is new; not for one that fell silent."""
    if c.side != "drop" or _ripe(c, rules) or c.acceptance is None or c.alarm_time is None:
        return False
    return facts.now - c.alarm_time < PATIENCE * rules.confirm * rules.scrape_interval


def _losing(loop: LoopState, facts: Facts, rules: Rules) -> tuple[LoopState, bool]:
    """Tell whether speculation is measured to lose, and has been for `confirm` windows."""
    benefit = facts.benefit
    if benefit is None or benefit.high >= 1 or benefit.windows < rules.confirm:
        return replace(loop, losing_since=None), False
    since = facts.now if loop.losing_since is None else loop.losing_since
    loop = replace(loop, losing_since=since)
    return loop, facts.now - since >= rules.confirm * rules.scrape_interval


def _better(loop: LoopState, facts: Facts, rules: Rules) -> tuple[LoopState, bool]:
    """Tell whether a known rung has surely been better by `min_gain` for a good while.

    No drift is needed for this: the load alone may have made another rung the better one.
    """
    benefit, found = facts.benefit, False
    if benefit is not None and benefit.windows >= rules.confirm:
        choice = choose(facts, rules, loop.rung, loop.as_found, _barred(loop, facts))
        rung = choice.rung
        if rung is not None and rung.speedup is not None:
            found = rung.speedup / benefit.high - 1 >= rules.min_gain
    if not found:
        return replace(loop, better_since=None), False
    since = facts.now if loop.better_since is None else loop.better_since
    loop = replace(loop, better_since=since)
    return loop, _lasting(since, facts, rules)


def _lasting(since: float | None, facts: Facts, rules: Rules) -> bool:
    """Tell whether something stood for so long that it is no passing load."""
    patience = PATIENCE * rules.confirm * rules.scrape_interval
    return since is not None and facts.now - since >= patience


def _below_floor(facts: Facts, rules: Rules) -> bool:
    """The floor holds until break-even has been measured."""
    if facts.benefit is not None or rules.floor is None or len(facts.rows) < rules.confirm:
        return False
    return any(_low(c, rules) for c in facts.classes)


def _low(c: ClassView, rules: Rules) -> bool:
    if c.acceptance is None or rules.floor is None or c.draft_tokens < FEWEST_FLOOR_TOKENS:
        return False
    return c.acceptance < rules.floor


def _refusal(loop: LoopState, facts: Facts, rules: Rules, rung: Alternative | None) -> str:
    """Return why act mode may not act now, or an empty string."""
    recent = [t for t in loop.actions if facts.now - t < DAY]
    if facts.rollout.status == "none":
        return "nothing here can change the engine's configuration"
    if len(recent) >= rules.actions_per_day:
        return f"{len(recent)} actions in 24 h reach actionsPerDay {rules.actions_per_day}"
    if loop.last_action is not None and facts.now - loop.last_action < rules.cooldown:
        left = rules.cooldown - (facts.now - loop.last_action)
        return f"the cool-down lasts another {sentences.span(left)}"
    if not facts.in_maintenance:
        return "this is outside the maintenance windows"
    if rung is not None and rung.gain is None and rules.when_unknown.value != "trial":
        return "its gain is not known and the policy allows no trial"
    return ""


def _move(
    loop: LoopState,
    facts: Facts,
    rung: str,
    settings: Mapping[str, object] | None,
    purpose: Purpose,
) -> LoopState:
    counted = purpose in (Purpose.ACT, Purpose.PROBE)
    return replace(
        loop,
        phase=Phase.ROLLOUT,
        purpose=purpose,
        previous_rung=loop.rung,
        previous_settings=loop.settings,
        rung=rung,
        settings=settings,
        since=facts.now,
        actions=((*loop.actions, facts.now)[-100:] if counted else loop.actions),
        last_action=facts.now,
        plan=loop.plan + 1,
        retries=0,
    )


def _rollout(loop: LoopState, facts: Facts, rules: Rules) -> tuple[LoopState, Decision | None]:
    status = facts.rollout.status
    late = facts.now - loop.since > rules.rollout_timeout
    if status == "ready":
        if loop.purpose is Purpose.UNDO:
            return replace(loop, phase=Phase.STEADY, purpose=None, since=facts.now), None
        if loop.purpose is Purpose.FALL_BACK:
            return _begin_standing(loop, facts), None
        return replace(loop, phase=Phase.VERIFYING, since=facts.now), None
    if status != "failed" and not late:
        return loop, None
    reason = facts.rollout.reason or f"not ready after {sentences.span(rules.rollout_timeout)}"
    if loop.purpose in (Purpose.UNDO, Purpose.FALL_BACK):
        wait = RETRY_WINDOWS * rules.scrape_interval * 2.0 ** min(4, loop.retries)
        text = sentences.stuck(facts, loop.rung, reason)
        if facts.now - loop.since >= wait:  # another plan: the actuator tries afresh
            retries = loop.retries + 1
            loop = replace(loop, plan=loop.plan + 1, since=facts.now, retries=retries)
        return _say(loop, f"stuck:{loop.rung}", Decision(facts.now, Kind.REPORT, text))
    text = sentences.undo_rollout(facts, loop.rung, loop.previous_rung, reason)
    barred = {**loop.barred, loop.rung: facts.now + rules.max_backoff}
    back = _move(loop, facts, loop.previous_rung, loop.previous_settings, _way_back(loop))
    return replace(back, barred=barred), Decision(facts.now, Kind.UNDO, text, rung=loop.rung)


def _way_back(loop: LoopState) -> Purpose:
    return Purpose.UNDO if loop.previous_rung == AS_FOUND else Purpose.FALL_BACK


def _fresh_rows(loop: LoopState, facts: Facts, rules: Rules) -> tuple[SpeedRow, ...]:
    ready = loop.since + rules.warm_up * rules.scrape_interval
    return tuple(r for r in facts.rows if r.time > ready)


def verified_gain(
    before: tuple[SpeedRow, ...],
    before_times: StepTimes,
    after: tuple[SpeedRow, ...],
    reference: StepTimes,
) -> Estimate | None:
    """Return after/before - 1 in speed at equal load, or None when not comparable.

    What the windows after would have taken before: T of the former configuration at each window's
    own load, over the tokens per step it had. Where those loads were never seen before, both
    sides against T(B, 0) instead (weaker: it takes the speedup for the same at both loads).
    """
    length = tokens_per_step(before)
    if length is not None:
        ratio = speedup(after, before_times)
        if ratio is not None:
            relative = (ratio.high - ratio.low) / (2 * ratio.value)
            spread = (length.high - length.low) / (2 * length.value)
            value = ratio.value / length.value
            margin = value * math.hypot(relative, spread)
            return Estimate(value - 1, value - margin - 1, value + margin - 1, ratio.windows)
    one, two = speedup(before, reference), speedup(after, reference)
    return gain_between(one, two) if one is not None and two is not None else None


def _verify(loop: LoopState, facts: Facts, rules: Rules) -> tuple[LoopState, Decision | None]:
    if facts.rollout.status == "failed":
        return _rollout(replace(loop, phase=Phase.ROLLOUT), facts, rules)
    if rules.mode is not Mode.ACT:
        key = f"paused:{loop.plan}"
        text = sentences.paused(facts, loop.rung, rules.mode.value)
        return _say(replace(loop, since=facts.now), key, Decision(facts.now, Kind.HOLD, text))
    after = _fresh_rows(loop, facts, rules)
    waited = (facts.now - loop.since) / rules.scrape_interval - rules.warm_up
    enough = len(after) >= max(3, rules.verify // 3)
    if loop.purpose is Purpose.PROBE:
        return _verify_probe(loop, facts, rules, after, waited, enough)
    gain = verified_gain(loop.before, loop.before_times, after, facts.reference)
    if gain is not None and enough and gain.low > 0:
        measured = speedup(after, facts.reference)
        text = sentences.verified(facts, loop.rung, gain)
        stood = replace(
            _begin_standing(loop, facts, rules.probe_after),
            standing=measured.value if measured else None,
        )
        return stood, Decision(facts.now, Kind.VERIFIED, text, rung=loop.rung, gain=gain)
    worse = gain is not None and enough and gain.high < 0
    if not worse and waited < rules.verify:
        return loop, None
    if not worse and not enough and waited < PATIENCE * rules.verify:
        return loop, None  # too little traffic to compare at: wait a while before giving up
    text = sentences.undo(facts, loop.rung, loop.previous_rung, gain)
    barred = {**loop.barred, loop.rung: facts.now + rules.max_backoff}
    back = _move(loop, facts, loop.previous_rung, loop.previous_settings, _way_back(loop))
    return replace(back, barred=barred), Decision(
        facts.now, Kind.UNDO, text, rung=loop.rung, gain=gain
    )


def _begin_standing(loop: LoopState, facts: Facts, first_wait: float | None = None) -> LoopState:
    wait = first_wait if first_wait is not None else loop.probe_wait
    return replace(
        loop,
        phase=Phase.STANDING,
        purpose=None,
        since=facts.now,
        probe_wait=wait,
        probe_at=facts.now + wait,
    )


def _stand(loop: LoopState, facts: Facts, rules: Rules) -> tuple[LoopState, Decision | None]:
    loop, losing = _losing(loop, facts, rules)
    if facts.point is None or loop.probe_at is None:
        return loop, None  # no traffic: nothing to probe with
    if losing and _lasting(loop.losing_since, facts, rules):
        choice = choose(facts, rules, loop.rung, loop.as_found, _barred(loop, facts))
        if choice.rung is not None:  # the verified fallback loses now, and another rung does not
            return _take(loop, facts, rules, Trigger("fallback losing"), choice)
    if not losing and facts.now < loop.probe_at:
        return loop, None
    now_worth = _worth(loop, facts)
    expected = predicted_at_baseline(facts, facts.point.running)
    goal = _goal(now_worth, rules)
    if expected is not None and expected < goal and not losing:
        # Even at baseline acceptance it would not pay at this load: wait, ask again shortly.
        return replace(loop, probe_at=facts.now + 4 * rules.scrape_interval), None
    refusal = _refusal(loop, facts, rules, None)
    text = sentences.probe(facts, loop.rung, facts.now - loop.since, refusal)
    if refusal or rules.mode is not Mode.ACT:
        key = f"probe:{refusal.partition(' lasts')[0]}"
        return _say(loop, key, Decision(facts.now, Kind.RECOMMEND, text))
    moved = _move(loop, facts, AS_FOUND, loop.as_found, Purpose.PROBE)
    moved = replace(moved, standing=now_worth)
    return moved, Decision(facts.now, Kind.PROBE, text, rung=AS_FOUND, settings=loop.as_found)


def _worth(loop: LoopState, facts: Facts) -> float:
    """Return the speedup of the fallback in force: as measured now, else as verified; off is 1."""
    if loop.rung == OFF:
        return 1.0
    if facts.benefit is not None:
        return facts.benefit.value
    return loop.standing or 1.0


def _goal(worth: float, rules: Rules) -> float:
    """Return the speedup at which the original is taken back.

    It is what the operator chose: the fallback must be worth `min_gain` more to stay.
    """
    return max(1.0, worth / (1 + rules.min_gain))


def _verify_probe(
    loop: LoopState,
    facts: Facts,
    rules: Rules,
    after: tuple[SpeedRow, ...],
    waited: float,
    enough: bool,
) -> tuple[LoopState, Decision | None]:
    measured = speedup(after, facts.reference)
    goal = _goal(loop.standing or 1.0, rules)
    if measured is not None and enough and measured.low > 1 and measured.value > goal:
        text = sentences.recovered(facts, measured)
        done = replace(
            loop,
            phase=Phase.STEADY,
            purpose=None,
            since=facts.now,
            standing=None,
            probe_at=None,
            probe_wait=0.0,
        )
        return done, Decision(facts.now, Kind.RECOVERED, text, rung=AS_FOUND, gain=measured)
    failed = measured is not None and enough and measured.high < goal
    if not failed and waited < (rules.verify if enough else PATIENCE * rules.verify):
        return loop, None
    wait = min(rules.max_backoff, 2 * max(loop.probe_wait, rules.probe_after))
    text = sentences.probe_failed(facts, loop.previous_rung, measured, wait)
    back = _move(loop, facts, loop.previous_rung, loop.previous_settings, Purpose.FALL_BACK)
    return replace(back, probe_wait=wait), Decision(
        facts.now, Kind.FALL_BACK, text, rung=loop.previous_rung, gain=measured
    )
