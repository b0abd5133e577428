"""The loop under arbitrary weather: budgets, modes, and no action without an end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from specdrift.core.loop import Decision, Kind, LoopState, Phase, advance, begin
from specdrift.core.policy import AS_FOUND, Facts, Mode, Rollout, Rules, Rung, WhenUnknown
from specdrift.service import checkpoint
from tests.support.facts import (
    AS_FOUND_CONFIG,
    NGRAM,
    PLAIN_STEP,
    QUIET,
    RULES,
    drop,
    facts,
    idle,
)

T0 = 1_000_000.0
TICKS = 250
STORM = replace(
    RULES,
    rungs=(Rung("ngram", NGRAM), Rung("lower-k"), Rung("off")),
    when_unknown=WhenUnknown.TRIAL,
    output_check_disabled_because="compared by hand",
    floor=0.5,
    cooldown=3.0,
    actions_per_day=6,
    rollout_timeout=8.0,
    probe_after=5.0,
    max_backoff=40.0,
    confirm=3,
    verify=6,
    warm_up=1,
)
# From ACT to its end: the rollout, then warm-up, then at most four times `verify` without traffic.
LONGEST = STORM.rollout_timeout + STORM.warm_up + 4 * STORM.verify + 5


def weather(rng: np.random.Generator, ticks: int = TICKS, interval: float = 1.0) -> list[Facts]:
    """Facts that hang together in spells of a few ticks, and otherwise are anything at all."""
    made: list[Facts] = []
    while len(made) < ticks:
        length = float(rng.uniform(1.0, 3.0))
        step = float(rng.uniform(0.8, 3.0)) * PLAIN_STEP
        known, traffic, speculating = rng.random(3) < (0.8, 0.85, 0.8)
        classes = (QUIET,)
        if rng.random() < 0.5:
            effect, windows = float(rng.uniform(-0.5, -0.02)), int(rng.integers(0, 40))
            alarm = drop(since=T0 + len(made), effect=effect, windows=windows)
            classes = (replace(alarm, settled=bool(rng.random() < 0.8)), QUIET)
        status = str(rng.choice(["ready", "ready", "ready", "in_progress", "failed", "none"]))
        mix = "The mix changed." if rng.random() < 0.2 else None
        for _ in range(int(rng.integers(1, 15))):
            tick = facts(
                T0 + len(made) * interval,
                length=length,
                step=step,
                known=bool(known),
                speculating=bool(speculating),
                classes=classes,
            )
            if not traffic:
                tick = idle(tick)
            made.append(replace(tick, rollout=Rollout(status, "weather", 2.0), mix=mix))
    return made[:ticks]


def run(loop: LoopState, ticks: list[Facts], rules: Rules) -> tuple[LoopState, list[Decision]]:
    made = []
    for tick in ticks:
        loop, decision = advance(loop, tick, rules)
        if decision is not None:
            assert decision.time == tick.now
            assert decision.sentence
            made.append(decision)
    return loop, made


SEEDS = st.integers(0, 2**32)
few = settings(max_examples=15)


@given(SEEDS)
@few
def test_no_more_actions_than_a_day_allows(seed: int) -> None:
    # Ten minutes a tick: 250 of them are a day and three quarters.
    slow = replace(STORM, scrape_interval=600.0, cooldown=600.0, rollout_timeout=3600.0)
    _, made = run(
        begin(AS_FOUND_CONFIG, T0), weather(np.random.default_rng(seed), interval=600.0), slow
    )
    times = [d.time for d in made if d.kind in (Kind.ACT, Kind.PROBE)]
    for i, start in enumerate(times):
        assert sum(start <= t < start + 86400.0 for t in times[i:]) <= slow.actions_per_day


@given(SEEDS, st.sampled_from([Mode.OBSERVE, Mode.RECOMMEND]))
@few
def test_other_modes_never_act(seed: int, mode: Mode) -> None:
    loop = begin(AS_FOUND_CONFIG, T0)
    for tick in weather(np.random.default_rng(seed)):
        loop, decision = advance(loop, tick, replace(STORM, mode=mode))
        assert loop.phase is Phase.STEADY
        assert loop.settings == AS_FOUND_CONFIG
        assert loop.plan == 0
        if decision is not None:
            assert decision.kind in (Kind.HOLD, Kind.REPORT, Kind.RECOMMEND)


@given(SEEDS)
@few
def test_every_action_ends_verified_or_undone(seed: int) -> None:
    loop, open_since = begin(AS_FOUND_CONFIG, T0), None
    for tick in weather(np.random.default_rng(seed)):
        loop, decision = advance(loop, tick, STORM)
        kind = decision.kind if decision is not None else None
        if open_since is not None:
            assert tick.now - open_since <= LONGEST
            assert kind not in (Kind.ACT, Kind.PROBE)
        if kind is Kind.ACT:
            open_since = tick.now
        elif kind in (Kind.VERIFIED, Kind.UNDO):
            open_since = None


@given(SEEDS)
@few
def test_every_probe_ends_restored_or_fallen_back(seed: int) -> None:
    loop, open_since = begin(AS_FOUND_CONFIG, T0), None
    for tick in weather(np.random.default_rng(seed)):
        loop, decision = advance(loop, tick, STORM)
        kind = decision.kind if decision is not None else None
        if open_since is not None:
            assert tick.now - open_since <= LONGEST
        if kind is Kind.PROBE:
            open_since = tick.now
        elif kind in (Kind.RECOVERED, Kind.FALL_BACK, Kind.UNDO):
            open_since = None


@given(SEEDS)
@few
def test_what_should_be_in_force_is_always_something_allowed(seed: int) -> None:
    loop = begin(AS_FOUND_CONFIG, T0)
    lower = [{**AS_FOUND_CONFIG, "num_speculative_tokens": k} for k in (1, 2)]
    for tick in weather(np.random.default_rng(seed)):
        before = loop
        loop, decision = advance(loop, tick, STORM)
        assert loop.as_found == AS_FOUND_CONFIG
        assert loop.settings in [None, AS_FOUND_CONFIG, NGRAM, *lower]
        assert (loop.rung == AS_FOUND) == (loop.settings == AS_FOUND_CONFIG)
        if loop.phase is Phase.STEADY:
            assert loop.rung == AS_FOUND
        if loop.settings != before.settings:
            assert decision is not None
            assert loop.phase is Phase.ROLLOUT
            assert loop.plan == before.plan + 1


@given(SEEDS)
@few
def test_a_rung_that_did_not_help_is_left_alone_for_a_while(seed: int) -> None:
    loop, barred = begin(AS_FOUND_CONFIG, T0), dict[str, float]()
    for tick in weather(np.random.default_rng(seed)):
        loop, decision = advance(loop, tick, STORM)
        if decision is None or decision.rung is None:
            continue
        if decision.kind is Kind.UNDO and decision.rung != AS_FOUND:
            barred[decision.rung] = tick.now + STORM.max_backoff
        if decision.kind is Kind.ACT:
            assert tick.now >= barred.get(decision.rung, 0.0)


@given(SEEDS, st.integers(1, TICKS - 1))
@few
def test_a_loop_saved_in_the_middle_goes_on_the_same(seed: int, cut: int) -> None:
    ticks = weather(np.random.default_rng(seed))
    whole, made = run(begin(AS_FOUND_CONFIG, T0), ticks, STORM)
    half, first = run(begin(AS_FOUND_CONFIG, T0), ticks[:cut], STORM)
    loaded = checkpoint.load(LoopState, checkpoint.dump(half))
    assert loaded == half
    end, second = run(loaded, ticks[cut:], STORM)
    assert end == whole
    assert first + second == made


@given(SEEDS)
@few
def test_one_fact_is_not_said_twice_in_a_row(seed: int) -> None:
    """Two ticks with the same facts but the time: the second has nothing new to say."""
    rules = replace(STORM, mode=Mode.RECOMMEND)
    loop = begin(AS_FOUND_CONFIG, T0)
    for tick in weather(np.random.default_rng(seed), ticks=60):
        loop, _ = advance(loop, tick, rules)
        once, _ = advance(loop, tick, rules)
        _, again = advance(once, tick, rules)
        assert again is None
