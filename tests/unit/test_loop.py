"""The life of an action, tick by tick: act, roll out, verify, undo, stand, probe, recover."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from specdrift.config import parse_policy
from specdrift.core.loop import (
    Decision,
    Kind,
    LoopState,
    Phase,
    Purpose,
    adopt,
    advance,
    begin,
    verified_gain,
)
from specdrift.core.policy import AS_FOUND, OFF, ClassView, Facts, Mode, Rules, Rung, WhenUnknown
from tests.support.facts import (
    AS_FOUND_CONFIG,
    NGRAM,
    PLAIN_STEP,
    RULES,
    SPEC_STEP,
    drop,
    facts,
    idle,
    losing,
    rows,
    table,
)

T0 = 1_000_000.0
LADDER = replace(
    RULES,
    rungs=(Rung("ngram", NGRAM), Rung("off")),
    when_unknown=WhenUnknown.TRIAL,
    output_check_disabled_because="compared by hand",
)


def run(
    loop: LoopState, ticks: Iterable[Facts], rules: Rules = RULES
) -> tuple[LoopState, list[Decision]]:
    made = []
    for tick in ticks:
        loop, decision = advance(loop, tick, rules)
        if decision is not None:
            made.append(decision)
    return loop, made


def until_said(
    loop: LoopState, ticks: Iterable[Facts], rules: Rules = RULES
) -> tuple[LoopState, Decision]:
    """Run up to the first decision."""
    for tick in ticks:
        loop, decision = advance(loop, tick, rules)
        if decision is not None:
            return loop, decision
    pytest.fail("no decision")


def seconds(start: float, count: int, tick: Callable[[float], Facts]) -> list[Facts]:
    return [tick(start + i) for i in range(count)]


def plain(now: float, **more: object) -> Facts:
    """Speculation off and serving."""
    return facts(now, length=1.0, step=PLAIN_STEP, speculating=False, **more)  # type: ignore[arg-type]


def drifted(now: float, **more: object) -> Facts:
    return losing(now, classes=(drop(since=now - 30),), **more)


@pytest.fixture
def steady() -> LoopState:
    return begin(AS_FOUND_CONFIG, T0)


@pytest.fixture
def acted(steady: LoopState) -> LoopState:
    loop, decision = advance(steady, drifted(T0), RULES)
    assert decision is not None
    assert decision.kind is Kind.ACT
    return loop


@pytest.fixture
def verifying(acted: LoopState) -> LoopState:
    loop, made = run(acted, [plain(T0 + 5)])
    assert made == []
    return loop


@pytest.fixture
def standing(verifying: LoopState) -> LoopState:
    loop, made = run(verifying, seconds(T0 + 6, 30, plain))
    assert [d.kind for d in made] == [Kind.VERIFIED]
    return loop


# --- steady ------------------------------------------------------------------------------------


def test_nothing_wrong_is_nothing_said(steady: LoopState) -> None:
    loop, made = run(steady, seconds(T0, 50, facts))
    assert made == []
    assert loop.phase is Phase.STEADY


def test_a_confirmed_drop_that_costs_is_acted_on(steady: LoopState) -> None:
    loop, decision = advance(steady, drifted(T0), RULES)
    assert decision is not None
    assert (decision.kind, decision.rung, decision.settings) == (Kind.ACT, OFF, None)
    assert (decision.traffic_class, decision.cause) == ("code", "content_drift")
    for part in ("off", "llama", "class code", "0.60 → 0.30", "content_drift", "+38%", "restart"):
        assert part in decision.sentence, part
    assert (loop.phase, loop.purpose, loop.rung, loop.settings) == (
        Phase.ROLLOUT,
        Purpose.ACT,
        OFF,
        None,
    )
    assert loop.previous_rung == AS_FOUND
    assert loop.previous_settings == AS_FOUND_CONFIG
    assert loop.as_found == AS_FOUND_CONFIG
    assert loop.actions == (T0,)
    assert loop.plan == steady.plan + 1


def test_a_young_alarm_is_waited_out(steady: LoopState) -> None:
    def young(now: float) -> Facts:
        return losing(now, classes=(drop(since=now - 1, windows=RULES.confirm - 1),))

    loop, made = run(steady, seconds(T0, 30, young))
    assert made == []
    assert loop.phase is Phase.STEADY


def test_a_drop_that_still_pays_is_held_with_advice_once(steady: LoopState) -> None:
    alarm = drop(since=T0 - 30, effect=-0.1)
    loop, made = run(steady, [facts(T0 + i, classes=(alarm,)) for i in range(40)])
    assert [d.kind for d in made] == [Kind.HOLD]
    assert "retrain the draft" in made[0].sentence
    assert "1.18x" in made[0].sentence
    assert loop.phase is Phase.STEADY
    again = replace(alarm, alarm_time=T0 + 200)
    _, made = run(loop, [facts(T0 + 300, classes=(again,))])
    assert [d.kind for d in made] == [Kind.HOLD]


def test_an_unknown_benefit_is_held_and_says_what_would_tell(steady: LoopState) -> None:
    alarm = drop(since=T0 - 30)
    loop, made = run(steady, [facts(T0, length=1.6, known=False, classes=(alarm,))])
    assert [d.kind for d in made] == [Kind.HOLD]
    assert "not known" in made[0].sentence
    assert "calibration" in made[0].sentence
    assert loop.phase is Phase.STEADY


def test_a_loss_without_drift_is_acted_on_once_it_lasts(steady: LoopState) -> None:
    loop, made = run(steady, seconds(T0, RULES.confirm, losing))
    assert made == []
    loop, made = run(loop, [losing(T0 + RULES.confirm)])
    assert [d.kind for d in made] == [Kind.ACT]
    assert made[0].traffic_class is None
    assert "no drift" in made[0].sentence


def test_a_loss_that_comes_and_goes_is_not(steady: LoopState) -> None:
    ticks = [losing(T0 + i) if i % 8 else facts(T0 + i) for i in range(80)]
    _, made = run(steady, ticks)
    assert made == []


@pytest.mark.parametrize(
    ("mode", "kind"), [(Mode.OBSERVE, Kind.REPORT), (Mode.RECOMMEND, Kind.RECOMMEND)]
)
def test_other_modes_say_it_once_and_change_nothing(
    steady: LoopState, mode: Mode, kind: Kind
) -> None:
    alarm = drop(since=T0 - 30)
    ticks = [losing(T0 + i, classes=(alarm,)) for i in range(60)]
    loop, made = run(steady, ticks, replace(RULES, mode=mode))
    assert [d.kind for d in made] == [kind]
    assert made[0].rung == OFF
    assert (loop.phase, loop.rung, loop.settings) == (Phase.STEADY, AS_FOUND, AS_FOUND_CONFIG)
    assert loop.actions == ()


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_a_recommendation_does_not_read_like_an_action(steady: LoopState, mode: Mode) -> None:
    """The sentence is all that an event or a chart shows: it must say that nothing was done."""
    _, action = advance(steady, drifted(T0), RULES)
    _, advice = advance(steady, drifted(T0), replace(RULES, mode=mode))
    assert action is not None
    assert advice is not None
    assert advice.sentence != action.sentence
    assert not advice.sentence.startswith("Switch to")


def test_a_second_time_of_loss_is_said_again(steady: LoopState) -> None:
    rules = replace(RULES, mode=Mode.RECOMMEND)
    loop, made = run(steady, seconds(T0, 60, losing), rules)
    assert len(made) == 1
    loop, made = run(loop, seconds(T0 + 60, 600, facts), rules)
    assert made == []
    _, made = run(loop, seconds(T0 + 86400, 60, losing), rules)
    assert [d.kind for d in made] == [Kind.RECOMMEND]


def cooling(loop: LoopState) -> LoopState:
    return replace(loop, last_action=T0 - 1)


def spent(loop: LoopState) -> LoopState:
    return replace(loop, actions=tuple(T0 - 1000.0 * i for i in range(1, 5)))


@pytest.mark.parametrize(
    ("prepare", "change", "reason"),
    [
        (cooling, {}, "cool-down"),
        (spent, {}, "actionsPerDay 4"),
        (lambda loop: loop, {"in_maintenance": False}, "maintenance"),
        (lambda loop: loop, {"rollout": facts(T0, rollout="none").rollout}, "nothing here can"),
    ],
)
def test_what_may_not_be_done_is_recommended_with_the_reason(
    steady: LoopState,
    prepare: Callable[[LoopState], LoopState],
    change: dict[str, object],
    reason: str,
) -> None:
    made = replace(drifted(T0), **change)  # type: ignore[arg-type]
    loop, decision = advance(prepare(steady), made, RULES)
    assert decision is not None
    assert decision.kind is Kind.RECOMMEND
    assert decision.sentence.startswith("Recommend off")
    assert "Not done:" in decision.sentence
    assert reason in decision.sentence
    assert loop.phase is Phase.STEADY


def test_one_refusal_is_said_once_while_the_cool_down_runs_down(steady: LoopState) -> None:
    rules = replace(RULES, cooldown=3600.0)
    alarm = drop(since=T0 - 30)
    loop = replace(steady, last_action=T0)
    ticks = [losing(T0 + 15 * i, classes=(alarm,)) for i in range(200)]
    _, made = run(loop, ticks, replace(rules, scrape_interval=15.0))
    assert [d.kind for d in made] == [Kind.RECOMMEND]


def test_it_acts_when_the_cool_down_is_over(steady: LoopState) -> None:
    loop = replace(steady, last_action=T0)
    _, made = run(loop, [drifted(T0 + i) for i in range(int(RULES.cooldown) + 1)])
    assert made[-1].kind is Kind.ACT
    assert made[-1].time == T0 + RULES.cooldown


def test_actions_of_yesterday_do_not_count(steady: LoopState) -> None:
    loop = replace(steady, actions=tuple(T0 - 86400.0 - i for i in range(9)))
    _, decision = advance(loop, drifted(T0), RULES)
    assert decision is not None
    assert decision.kind is Kind.ACT


def test_a_change_of_mix_is_reported_once_and_is_no_action(steady: LoopState) -> None:
    moved = "The mix of traffic changed."
    loop, made = run(steady, [replace(facts(T0 + i), mix=moved) for i in range(30)])
    assert [(d.kind, d.cause, d.sentence) for d in made] == [(Kind.REPORT, "mix_shift", moved)]
    assert loop.phase is Phase.STEADY
    loop, _ = run(loop, [facts(T0 + 40)])
    _, made = run(loop, [replace(facts(T0 + 50), mix=moved)])
    assert [d.kind for d in made] == [Kind.REPORT]


# --- the floor ---------------------------------------------------------------------------------


def low(now: float) -> Facts:
    """A draft that is bad from day one: no baseline to fall from, no benefit known."""
    bad = ClassView("code", acceptance=0.2, baseline=0.2, draft_tokens=2000.0)
    return facts(now, length=1.3, known=False, classes=(bad,))


def test_below_the_floor_is_said_once_while_the_benefit_is_unknown(steady: LoopState) -> None:
    rules = replace(RULES, floor=0.55)
    loop, made = run(steady, seconds(T0, 40, low), rules)
    assert len(made) == 1
    assert made[0].kind in (Kind.HOLD, Kind.RECOMMEND)
    assert "below the floor" in made[0].sentence
    assert loop.phase is Phase.STEADY


def test_above_the_floor_or_once_the_benefit_is_known_it_is_silent(steady: LoopState) -> None:
    rules = replace(RULES, floor=0.15)
    assert run(steady, seconds(T0, 40, low), rules)[1] == []
    paying = [replace(facts(T0 + i), classes=low(T0).classes) for i in range(40)]
    assert run(steady, paying, replace(RULES, floor=0.55))[1] == []


def test_the_floor_does_not_use_up_the_word_for_a_measured_loss(steady: LoopState) -> None:
    rules = replace(RULES, floor=0.55, mode=Mode.RECOMMEND, when_unknown=WhenUnknown.TRIAL)
    loop, made = run(steady, seconds(T0, 40, low), rules)
    assert [d.kind for d in made] == [Kind.RECOMMEND]
    _, made = run(loop, seconds(T0 + 100, 40, losing), rules)
    assert [d.kind for d in made] == [Kind.RECOMMEND]


@pytest.mark.parametrize(("action", "kind"), [("recommend", Kind.RECOMMEND), ("act", Kind.ACT)])
def test_the_floor_does_what_its_policy_says(action: str, kind: Kind) -> None:
    """floor: {action: recommend} (the default) must not act, trial or not."""
    policy = parse_policy(
        {
            "apiVersion": "specdrift.dev/v1alpha1",
            "kind": "SpecDecodePolicy",
            "metadata": {"name": "llama"},
            "spec": {
                "targetRef": {"kind": "LocalProcess", "command": ["x"], "healthUrl": "http://x"},
                "source": {"direct": {"urls": ["http://x"]}},
                "mode": "act",
                "whenBenefitUnknown": "trial",
                "floor": {"acceptance": 0.55, "action": action},
            },
        },
        where="test",
    )
    _, decision = until_said(begin(AS_FOUND_CONFIG, T0), seconds(T0, 40, low), policy.rules())
    assert decision.kind is kind
    assert "below the floor" in decision.sentence


# --- rollout -----------------------------------------------------------------------------------


def test_a_rollout_is_waited_for(acted: LoopState) -> None:
    loop, made = run(acted, [plain(T0 + i, rollout="in_progress") for i in range(1, 100)])
    assert made == []
    assert (loop.phase, loop.since, loop.plan) == (acted.phase, acted.since, acted.plan)
    loop, made = run(loop, [plain(T0 + 100)])
    assert made == []
    assert (loop.phase, loop.since) == (Phase.VERIFYING, T0 + 100)


def test_a_rollout_that_fails_is_undone(acted: LoopState) -> None:
    loop, decision = advance(
        acted, idle(plain(T0 + 3, rollout="failed", reason="CUDA out of memory")), RULES
    )
    assert decision is not None
    assert decision.kind is Kind.UNDO
    assert "CUDA out of memory" in decision.sentence
    assert (loop.phase, loop.purpose) == (Phase.ROLLOUT, Purpose.UNDO)
    assert (loop.rung, loop.settings) == (AS_FOUND, AS_FOUND_CONFIG)
    assert loop.plan == acted.plan + 1
    loop, made = run(loop, [losing(T0 + 9)])
    assert made == []
    assert loop.phase is Phase.STEADY
    _, made = run(loop, [drifted(T0 + 500)])
    assert [d.kind for d in made] == [Kind.HOLD]
    assert "did not help" in made[0].sentence


def test_a_rollout_that_takes_too_long_is_undone(acted: LoopState) -> None:
    late = int(RULES.rollout_timeout) + 2
    ticks = [plain(T0 + i, rollout="in_progress") for i in range(1, late)]
    loop, decision = until_said(acted, ticks)
    assert decision.kind is Kind.UNDO
    assert decision.time > T0 + RULES.rollout_timeout
    assert "not ready after" in decision.sentence
    assert loop.purpose is Purpose.UNDO


def test_a_way_back_that_fails_asks_for_a_person_once(acted: LoopState) -> None:
    loop, _ = run(acted, [plain(T0 + 3, rollout="failed", reason="exit 1")])
    bad = [idle(plain(T0 + 4 + i, rollout="failed", reason="exit 1")) for i in range(50)]
    loop, made = run(loop, bad)
    assert [d.kind for d in made] == [Kind.REPORT]
    assert "person" in made[0].sentence
    assert (loop.rung, loop.settings) == (AS_FOUND, AS_FOUND_CONFIG)
    loop, _ = run(loop, [losing(T0 + 100)])
    assert loop.phase is Phase.STEADY


# --- verification ------------------------------------------------------------------------------


def test_a_gain_is_verified_and_the_probe_is_due(verifying: LoopState) -> None:
    loop, made = run(verifying, seconds(T0 + 6, 30, plain))
    assert [d.kind for d in made] == [Kind.VERIFIED]
    gain = made[0].gain
    assert gain is not None
    assert gain.value == pytest.approx(0.375, abs=0.02)
    assert 0 < gain.low < gain.value < gain.high
    assert (loop.phase, loop.rung, loop.settings) == (Phase.STANDING, OFF, None)
    assert loop.probe_at == made[0].time + RULES.probe_after


def test_warm_up_is_left_out(verifying: LoopState) -> None:
    """Windows within the warm-up say nothing, however good they look."""
    inside = T0 + 5 + RULES.warm_up
    ticks = [replace(plain(T0 + 5 + i), rows=plain(inside).rows) for i in range(1, 20)]
    _, made = run(verifying, ticks)
    assert made == []


def test_a_loss_is_undone_early(steady: LoopState) -> None:
    loop, made = run(steady, [drifted(T0)], LADDER)
    assert made[0].rung == "ngram"

    def worse(now: float) -> Facts:
        return facts(now, length=1.1, step=SPEC_STEP, classes=(drop(since=T0 - 30),))

    ticks = [worse(T0 + 5 + i) for i in range(LADDER.verify)]
    loop, decision = until_said(loop, ticks, LADDER)
    assert (decision.kind, decision.rung) == (Kind.UNDO, "ngram")
    assert decision.gain is not None
    assert decision.gain.high < 0
    assert decision.time < T0 + 5 + LADDER.warm_up + LADDER.verify
    assert (loop.rung, loop.settings) == (AS_FOUND, AS_FOUND_CONFIG)
    # The next choice leaves it out.
    loop, _ = run(loop, [losing(T0 + 40)], LADDER)
    loop, made = run(loop, [drifted(T0 + 200)], LADDER)
    assert [(d.kind, d.rung) for d in made] == [(Kind.ACT, OFF)]


def test_no_difference_is_undone_when_the_time_is_up(verifying: LoopState) -> None:
    def same(now: float) -> Facts:
        return facts(now, length=1.0, step=SPEC_STEP / 1.6, speculating=False)

    loop, made = run(verifying, seconds(T0 + 6, RULES.warm_up + RULES.verify, same))
    assert [d.kind for d in made] == [Kind.UNDO]
    assert "did not help" in made[0].sentence
    assert loop.purpose is Purpose.UNDO


def test_what_cannot_be_compared_is_undone_in_the_end(verifying: LoopState) -> None:
    length = RULES.warm_up + 4 * RULES.verify
    loop, made = run(verifying, [idle(plain(T0 + 6 + i)) for i in range(length - 2)])
    assert made == []
    loop, made = run(loop, [idle(plain(T0 + 4 + length + i)) for i in range(3)])
    assert [d.kind for d in made] == [Kind.UNDO]
    assert "not comparable" in made[0].sentence


def test_the_comparison_is_at_equal_load() -> None:
    """Half the load makes steps faster by itself: that is no gain."""
    before = rows(1.6, SPEC_STEP, end=T0)
    times = table(SPEC_STEP).add(rows(1.6, 0.016, end=T0, load=2.0)[0])
    after = rows(1.6, 0.016, end=T0 + 50, load=2.0)
    gain = verified_gain(before, times, after, table())
    assert gain is not None
    assert gain.low < 0 < gain.high
    assert gain.value == pytest.approx(0.0, abs=0.01)


def test_loads_never_seen_are_not_comparable() -> None:
    before, after = rows(1.6, SPEC_STEP, end=T0), rows(1.0, 0.03, end=T0 + 50, load=64.0)
    assert verified_gain(before, table(SPEC_STEP), after, table()) is None


def test_an_engine_that_dies_while_verified_is_undone(verifying: LoopState) -> None:
    loop, made = run(verifying, [idle(plain(T0 + 9, rollout="failed", reason="killed"))])
    assert [d.kind for d in made] == [Kind.UNDO]
    assert loop.settings == AS_FOUND_CONFIG


# --- standing, probing, recovery ----------------------------------------------------------------


def due(loop: LoopState) -> float:
    assert loop.probe_at is not None
    return loop.probe_at


def test_a_fallback_stands_until_the_probe_is_due(standing: LoopState) -> None:
    end = due(standing)
    loop, made = run(standing, [plain(T0 + 60), plain(end - 1)])
    assert made == []
    loop, made = run(loop, [plain(end)])
    assert [d.kind for d in made] == [Kind.PROBE]
    assert (loop.phase, loop.purpose) == (Phase.ROLLOUT, Purpose.PROBE)
    assert (loop.rung, loop.settings) == (AS_FOUND, AS_FOUND_CONFIG)
    assert len(loop.actions) == 2


def test_nothing_is_probed_without_traffic(standing: LoopState) -> None:
    _, made = run(standing, [idle(plain(due(standing) + i)) for i in range(50)])
    assert made == []


def test_a_probe_that_cannot_pay_is_put_off(standing: LoopState) -> None:
    """At this load even the baseline would lose: wait for another load, not for acceptance."""
    end = due(standing)
    loop, made = run(standing, [replace(plain(end + i), baseline_length=1.5) for i in range(300)])
    assert made == []
    loop, made = run(loop, [plain(due(loop))])
    assert [d.kind for d in made] == [Kind.PROBE]


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_probes_are_only_recommended_in_other_modes(standing: LoopState, mode: Mode) -> None:
    rules = replace(RULES, mode=mode)
    loop, made = run(standing, [plain(due(standing) + i) for i in range(50)], rules)
    assert [d.kind for d in made] == [Kind.RECOMMEND]
    assert loop.phase is Phase.STANDING
    assert loop.settings is None


def probing(standing: LoopState) -> LoopState:
    now = due(standing)
    loop, _ = run(standing, [plain(now), facts(now + 5)])
    assert (loop.phase, loop.purpose) == (Phase.VERIFYING, Purpose.PROBE)
    return loop


def test_a_probe_that_pays_restores_the_original(standing: LoopState) -> None:
    loop = probing(standing)
    loop, made = run(loop, seconds(loop.since + 1, 30, facts))
    assert [d.kind for d in made] == [Kind.RECOVERED]
    assert (loop.phase, loop.rung, loop.settings) == (Phase.STEADY, AS_FOUND, AS_FOUND_CONFIG)
    assert loop.probe_wait == 0.0
    assert loop.probe_at is None


def test_a_probe_that_does_not_falls_back_and_waits_longer(standing: LoopState) -> None:
    waits = []
    loop = standing
    for _ in range(6):
        loop = replace(probing(loop), actions=())
        ticks = seconds(loop.since + 1, RULES.warm_up + RULES.verify, losing)
        loop, decision = until_said(loop, ticks)
        assert decision.kind is Kind.FALL_BACK
        assert (loop.rung, loop.settings) == (OFF, None)
        loop, made = run(loop, [plain(loop.since + 5)])
        assert made == []
        assert loop.phase is Phase.STANDING
        waits.append(due(loop) - loop.since)
    assert waits == [240.0, 480.0, 960.0, 1000.0, 1000.0, 1000.0]


def test_probes_count_as_actions(standing: LoopState) -> None:
    rules = replace(RULES, actions_per_day=1)
    loop, made = run(standing, [plain(due(standing) + i) for i in range(20)], rules)
    assert [d.kind for d in made] == [Kind.RECOMMEND]
    assert "actionsPerDay" in made[0].sentence
    assert loop.phase is Phase.STANDING


# --- meeting a workload --------------------------------------------------------------------------


def test_the_loop_begins_with_what_it_found() -> None:
    loop = begin(AS_FOUND_CONFIG, T0)
    assert (loop.phase, loop.rung, loop.settings) == (Phase.STEADY, AS_FOUND, AS_FOUND_CONFIG)
    assert begin({}, T0).settings is None


@pytest.mark.parametrize("live", [None, NGRAM])
def test_a_fallback_met_without_its_history_stands_and_is_probed(
    steady: LoopState, live: dict[str, object] | None
) -> None:
    loop = adopt(steady, live, T0, RULES)
    assert loop.phase is Phase.STANDING
    assert loop.settings == live
    assert loop.probe_at == T0 + RULES.probe_after
    assert loop.actions == ()
    assert adopt(steady, AS_FOUND_CONFIG, T0, RULES) == steady
    assert adopt(begin({}, T0), None, T0, RULES) == begin({}, T0)
