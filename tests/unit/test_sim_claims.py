"""What each shipped scenario claims about its rungs, for twenty seeds, from the step model.

The margins are what makes every story end the same way for every seed: if one is edited away, a
test here says which.
"""

from __future__ import annotations

import math
from functools import cache

import pytest

from specdrift.core.specconfig import NGRAM_PRESET, SpecConfig, lower_num_speculative_tokens
from specdrift.sim.analysis import Outlook, outlook, speed
from specdrift.sim.resolved import ResolvedScenario
from specdrift.sim.scenario import Scenario, shipped_scenarios
from specdrift.sim.scenario import load_scenario as load

SEEDS = range(20)
RAMPS_OVER = 6.0


@cache
def load_scenario(name: str) -> Scenario:
    return load(name)


@cache
def rungs(name: str) -> dict[str, SpecConfig | None]:
    found = SpecConfig(load_scenario(name).engine.speculative_config or {})
    return {
        "found": found,
        "k1": lower_num_speculative_tokens(found, 1),
        "k2": lower_num_speculative_tokens(found, 2),
        "ngram": NGRAM_PRESET,
        "off": None,
    }


def times(name: str, seed: int, t: float) -> tuple[dict[str, Outlook], ResolvedScenario]:
    resolved = load_scenario(name).resolve(seed)
    return {rung: outlook(resolved, c, t) for rung, c in rungs(name).items()}, resolved


def onset(name: str, seed: int) -> float:
    at = load_scenario(name).resolve(seed).onset
    assert at is not None
    return at


def faster(seen: dict[str, Outlook], one: str, other: str) -> float:
    """Return how much less time per token `one` takes than `other` at equal arrivals (1 = same)."""
    return seen[other].seconds_per_token / seen[one].seconds_per_token


@pytest.mark.parametrize("name", shipped_scenarios())
def test_before_anything_happens_speculation_pays_and_k_is_right(name: str) -> None:
    for seed in SEEDS:
        seen, resolved = times(name, seed, 5.0)
        assert faster(seen, "found", "off") >= 1.2
        assert faster(seen, "found", "k1") > 1.0
        # No lower K is worth an action (minGain is 0.05).
        assert faster(seen, "k2", "found") < 1.04
        assert 8.0 <= seen["found"].running <= 14.0
        assert 0.010 <= seen["found"].step_seconds <= 0.026
        tokens = sum(resolved.arrivals(c, 5.0) for c in resolved.classes)
        assert 6.0 <= tokens <= 11.0


@pytest.mark.parametrize("name", shipped_scenarios())
def test_no_rung_runs_away(name: str) -> None:
    for seed in SEEDS:
        resolved = load_scenario(name).resolve(seed)
        for at in (0.0, *resolved.event_times):
            for rung, seen in times(name, seed, at + RAMPS_OVER)[0].items():
                limit = 0.6 if rung != "k2" else 0.7
                assert seen.running < limit * resolved.engine.max_num_seqs, (name, rung, at)


@pytest.mark.parametrize("name", ["drift-to-off", "weights-changed"])
def test_after_the_drift_off_beats_every_k(name: str) -> None:
    for seed in SEEDS:
        seen, resolved = times(name, seed, onset(name, seed) + RAMPS_OVER)
        for rung in ("found", "k2", "k1"):
            assert faster(seen, "off", rung) >= 1.15
            config, at = rungs(name)[rung], onset(name, seed) + RAMPS_OVER
            assert speed(resolved, None, at, 16) / speed(resolved, config, at, 16) >= 1.12


@pytest.mark.parametrize("name", ["drift-to-off", "drift-to-ngram", "overload-at-high-acceptance"])
def test_when_it_is_over_all_is_as_before(name: str) -> None:
    for seed in SEEDS:
        seen, resolved = times(name, seed, 5.0)
        assert 40.0 <= resolved.event_times[-1] - resolved.event_times[0] <= 50.0
        late = resolved.event_times[-1] + RAMPS_OVER
        assert resolved.scenario.duration_seconds >= late + 40.0
        assert times(name, seed, late)[0]["found"].seconds_per_token == pytest.approx(
            seen["found"].seconds_per_token
        )


def test_ngram_is_best_after_drift_to_ngram_and_not_before() -> None:
    name = "drift-to-ngram"
    for seed in SEEDS:
        before = times(name, seed, 5.0)[0]
        assert faster(before, "found", "ngram") >= 1.2
        after = times(name, seed, onset(name, seed) + RAMPS_OVER)[0]
        assert faster(after, "ngram", "off") >= 1.2
        assert faster(after, "off", "found") >= 1.3


def test_the_harmful_fallback_is_worse_than_what_it_replaces() -> None:
    name = "harmful-fallback"
    for seed in SEEDS:
        at = onset(name, seed) + RAMPS_OVER
        seen, resolved = times(name, seed, at)
        assert faster(seen, "found", "ngram") >= 1.15
        assert faster(seen, "off", "found") >= 1.1
        found, ngram = rungs(name)["found"], rungs(name)["ngram"]
        assert speed(resolved, found, at, 22) / speed(resolved, ngram, at, 22) >= 1.15


def test_a_change_of_mix_leaves_speculation_paying() -> None:
    name = "mix-shift"
    for seed in SEEDS:
        resolved = load_scenario(name).resolve(seed)
        assert all(resolved.change_times(c) == () for c in resolved.classes)
        seen = times(name, seed, onset(name, seed) + RAMPS_OVER)[0]
        assert faster(seen, "found", "off") >= 1.3
        assert faster(seen, "found", "k2") > 1.0


def test_overload_makes_speculation_lose_at_unchanged_acceptance() -> None:
    name = "overload-at-high-acceptance"
    for seed in SEEDS:
        at = onset(name, seed) + RAMPS_OVER
        seen, resolved = times(name, seed, at)
        assert 45.0 <= seen["found"].running <= 75.0
        assert faster(seen, "off", "found") >= 1.12
        assert faster(seen, "k1", "found") >= 1.12
        found = rungs(name)["found"]
        for batch in (45, 60, 90):
            assert speed(resolved, None, at, batch) / speed(resolved, found, at, batch) >= 1.12


def test_an_engine_that_cannot_keep_up_is_said_to_run_away() -> None:
    scenario = load_scenario("overload-at-high-acceptance")
    data = scenario.model_dump(by_alias=True)
    data["classes"]["code"]["arrivals_per_second"] = 500.0
    resolved = type(scenario).model_validate(data).resolve(0)
    assert math.isinf(outlook(resolved, rungs(scenario.name)["found"], 0.0).running)
