"""What the loop must not do, however odd the hour: act on noise, give up a way back, hurry."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from specdrift.core.loop import Kind, LoopState, Phase, advance, begin
from specdrift.core.policy import AS_FOUND, ClassView, Mode, WhenUnknown
from tests.support.facts import AS_FOUND_CONFIG, QUIET, RULES, drop, facts, idle, losing
from tests.unit.test_loop import T0, acted, plain, run, seconds, standing, steady, verifying

__all__ = ["acted", "standing", "steady", "verifying"]  # fixtures


def test_a_way_back_that_failed_is_tried_again_ever_more_slowly(acted: LoopState) -> None:
    loop, _ = run(acted, [plain(T0 + 3, rollout="failed", reason="exit 1")])
    plans = []
    for i in range(1000):
        before = loop.plan
        loop, _ = advance(loop, idle(plain(T0 + 4 + i, rollout="failed", reason="exit 1")), RULES)
        if loop.plan != before:
            plans.append(i)
    waits = [b - a for a, b in pairwise(plans)]
    assert len(plans) >= 3
    assert waits == sorted(waits)
    assert loop.rung == AS_FOUND
    assert len(loop.actions) == len(acted.actions)  # a way back is no action of the day


def test_a_class_that_fell_silent_after_its_alarm_holds_nobody_up() -> None:
    silent = replace(drop(name="batch", since=T0 - 5, windows=2), acceptance=None)
    tick = losing(T0, classes=(drop(since=T0 - 30), silent))
    _, decision = advance(begin(AS_FOUND_CONFIG, T0), tick, RULES)
    assert decision is not None
    assert decision.kind is Kind.ACT


def test_a_young_alarm_waits_for_windows_but_not_for_ever() -> None:
    young = drop(name="batch", since=T0 - 5, windows=2)
    _, decision = advance(
        begin(AS_FOUND_CONFIG, T0), losing(T0, classes=(drop(since=T0 - 60), young)), RULES
    )
    assert decision is None
    late = T0 + 10 * RULES.confirm
    _, decision = advance(
        begin(AS_FOUND_CONFIG, T0), losing(late, classes=(drop(since=T0 - 60), young)), RULES
    )
    assert decision is not None


def test_a_handful_of_tokens_is_not_below_the_floor() -> None:
    rules = replace(RULES, floor=0.5, when_unknown=WhenUnknown.TRIAL)
    few = ClassView("chat", acceptance=0.1, baseline=0.6, draft_tokens=30.0)
    many = replace(few, draft_tokens=3000.0)
    loop = begin(AS_FOUND_CONFIG, T0)
    assert (
        run(loop, seconds(T0, 40, lambda t: facts(t, known=False, classes=(few,))), rules)[1] == []
    )
    made = run(loop, seconds(T0, 40, lambda t: facts(t, known=False, classes=(many,))), rules)[1]
    assert [d.kind for d in made] == [Kind.RECOMMEND]


def test_an_absence_is_no_verification_time(verifying: LoopState) -> None:
    """Stopped for an hour in the middle: what could not be seen is not judged as no help."""
    loop, made = run(verifying, [plain(T0 + 6)])
    loop, made = run(loop, [idle(plain(T0 + 3606))])
    assert made == []
    assert loop.phase is Phase.VERIFYING
    loop, made = run(loop, seconds(T0 + 3607, 30, plain))
    assert [d.kind for d in made] == [Kind.VERIFIED]


def test_paused_in_the_middle_of_a_verification_nothing_moves(verifying: LoopState) -> None:
    paused = replace(RULES, mode=Mode.RECOMMEND)
    loop, made = run(verifying, seconds(T0 + 6, 200, losing), paused)
    assert [d.kind for d in made] == [Kind.HOLD]
    assert loop.phase is Phase.VERIFYING
    loop, made = run(loop, seconds(T0 + 206, 40, plain))
    assert [d.kind for d in made] == [Kind.VERIFIED]


def test_nothing_is_said_while_all_is_well() -> None:
    loop, made = run(
        begin(AS_FOUND_CONFIG, T0), seconds(T0, 500, lambda t: facts(t, classes=(QUIET,)))
    )
    assert made == []
    assert loop.phase is Phase.STEADY
