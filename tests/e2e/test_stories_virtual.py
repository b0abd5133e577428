"""Every shipped scenario to its end, under a virtual clock: what happened is what it calls for."""

from __future__ import annotations

import pytest

from specdrift.core.loop import Decision, Kind
from specdrift.service import checkpoint
from specdrift.service.explain import explain
from specdrift.sim.scenario import load_scenario, shipped_scenarios
from tests.support.virtual import MemoryStore, run_story

SEEDS = (1, 2, 3)
SCENARIOS = {
    "drift-to-ngram",
    "drift-to-off",
    "harmful-fallback",
    "mix-shift",
    "no-drift",
    "overload-at-high-acceptance",
    "restart-unchanged",
    "weights-changed",
}
UNDECIDED = {"alarm", "recovery", "down", "up"}
QUIET = {"mix-shift", "no-drift", "restart-unchanged"}


def test_all_scenarios_of_the_issue_are_shipped() -> None:
    assert set(shipped_scenarios()) >= SCENARIOS


STORIES = [
    *((name, seed) for name in sorted({*SCENARIOS, *shipped_scenarios()}) for seed in SEEDS),
    # The load swings about the point where the verified fallback breaks even, then goes back.
    ("overload-at-high-acceptance", 315),
]


@pytest.mark.parametrize(("name", "seed"), STORIES)
def test_story(name: str, seed: int) -> None:
    store = MemoryStore()
    story, world, told = run_story(load_scenario(name), seed, store=store)
    assert story.shortcomings() == [], "\n".join(f"{t:.1f} {k} {s}" for t, k, s in told.lines)
    assert story.false_alarms == 0
    if name in QUIET:
        assert world.changes == 0
        assert world.settings == world.found
    if story.alarm is not None:
        assert story.onset is not None
        assert 0 < story.alarm - story.onset <= 20
    # What was told is what was stored, in the same words.
    decided = [s for _, kind, s in told.lines if kind not in UNDECIDED]
    stored = [checkpoint.load(Decision, d.decision) for d in store.stored_decisions]
    assert [d.sentence for d in stored] == decided
    # A change of the engine's config is always one that was decided.
    moves = {Kind.ACT, Kind.UNDO, Kind.PROBE, Kind.FALL_BACK}
    assert world.changes == sum(d.kind in moves for d in stored)


@pytest.mark.parametrize("name", ["drift-to-off", "harmful-fallback"])
def test_every_decision_of_a_story_can_be_explained(name: str) -> None:
    store = MemoryStore()
    run_story(load_scenario(name), 4, store=store)
    assert store.stored_decisions
    for decision in store.stored_decisions:
        found = explain(decision)
        assert found.identical, found.differences


def test_the_same_seed_tells_the_same_story() -> None:
    one = run_story(load_scenario("weights-changed"), 5)
    two = run_story(load_scenario("weights-changed"), 5)
    assert one[2].lines == two[2].lines
    assert one[0].result() == two[0].result()
