"""The simulated engine against its scenario's truth, its own books and its restarts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from specdrift.core.specconfig import NGRAM_PRESET, SpecConfig
from specdrift.errors import SpecConfigError, TargetUnreachable
from specdrift.sim.analysis import outlook
from specdrift.sim.engine import SimulatedEngine
from specdrift.sim.scenario import Scenario, load_scenario
from specdrift.sim.statistics import EngineStatistics
from specdrift.sim.traffic import CALIBRATION_LEVELS, RequestSpec, TokenEvent

EAGLE = SpecConfig({"method": "eagle3", "model": "/models/draft", "num_speculative_tokens": 3})


def drafts(statistics: EngineStatistics) -> dict[str, int]:
    rows = list(statistics.spec.items())
    return {
        "drafts": sum(int(c.drafts.sum()) for _, c in rows),
        "tokens": sum(k * int(c.drafts.sum()) for (k, _), c in rows),
        "accepted": sum(int(c.accepted.sum()) for _, c in rows),
    }


def changed(name: str, **engine: Any) -> Scenario:
    data = load_scenario(name).model_dump(by_alias=True)
    data["engine"].update(engine)
    return Scenario.model_validate(data)


def test_equal_seeds_give_equal_pages_whatever_the_pace() -> None:
    resolved = load_scenario("drift-to-off").resolve(4)
    one, two = SimulatedEngine(resolved, EAGLE), SimulatedEngine(resolved, EAGLE)
    one.advance(20.0)
    for i in range(1, 201):
        two.advance(i / 10)
    assert one.exposition() == two.exposition()
    other = SimulatedEngine(load_scenario("drift-to-off").resolve(5), EAGLE)
    other.advance(20.0)
    assert other.exposition() != one.exposition()


def test_acceptance_follows_the_truth() -> None:
    resolved = load_scenario("no-drift").resolve(0)
    engine = SimulatedEngine(resolved, EAGLE)
    engine.advance(80.0)
    counts = engine.statistics.spec.values()
    for index, name in enumerate(engine.classes):
        a = resolved.truth(name, "eagle3", 0.0)
        expected = (a + a**2 + a**3) / 3
        n = sum(int(c.drafts[index]) for c in counts)
        taken = sum(int(c.accepted[index]) for c in counts)
        assert taken / (3 * n) == pytest.approx(expected, abs=0.02)
        first = sum(int(c.per_position[index, 0]) for c in counts)
        assert first / n == pytest.approx(a, abs=0.02)


@pytest.mark.parametrize("config", [EAGLE, NGRAM_PRESET, None])
def test_the_equilibrium_is_the_one_the_analysis_predicts(config: SpecConfig | None) -> None:
    scenario = load_scenario("no-drift")
    predicted = outlook(scenario.resolve(1), config, 5.0)
    engine = SimulatedEngine(scenario.resolve(1), config)
    engine.advance(80.0)
    statistics = engine.statistics
    steps = statistics.iteration.count
    seconds = sum(h.total for h in statistics.step_seconds.values())
    assert seconds / steps == pytest.approx(predicted.step_seconds, rel=0.03)
    request_steps = sum(int(c.sum()) for c in statistics.request_steps.values())
    output = int(statistics.output_tokens.sum())
    assert output / request_steps == pytest.approx(predicted.tokens_per_step, rel=0.04)


def test_the_books_balance() -> None:
    engine = SimulatedEngine(load_scenario("drift-to-off").resolve(2), EAGLE)
    engine.advance(60.0)
    statistics = engine.statistics
    finished = sum(statistics.success.values())
    assert finished == statistics.end_to_end.count == statistics.per_token.count > 300
    assert statistics.first_token.count == finished + engine.running
    assert sum(statistics.outcomes.values()) == finished
    total = drafts(statistics)
    assert total["tokens"] == 3 * total["drafts"]
    ended = statistics.finished.values()
    # Finished requests run on a later clock than the steps.
    assert sum(f.draft_tokens for f in ended) < total["tokens"]
    assert sum(f.accepted for f in ended) < total["accepted"]
    # One inter-token observation per decoding request and step.
    request_steps = sum(int(c.sum()) for c in statistics.request_steps.values())
    assert statistics.inter_token.count == request_steps - statistics.first_token.count
    assert statistics.iteration.count == sum(h.count for h in statistics.step_seconds.values())
    # Accepted tokens that max_tokens cut off are counted but not delivered.
    delivered = int(statistics.output_tokens.sum())
    assert delivered <= request_steps + total["accepted"]


def test_nothing_is_counted_before_its_step_ends() -> None:
    engine = SimulatedEngine(load_scenario("no-drift").resolve(0), EAGLE, traffic=False)
    engine.submit(RequestSpec("chat", 100, 8, ignore_eos=True))
    engine.advance(0.001)
    assert engine.running == 1
    assert engine.statistics.iteration.count == 0
    engine.advance(0.1)
    assert engine.statistics.iteration.count > 0


def test_requests_from_outside_get_their_tokens_and_an_end() -> None:
    engine = SimulatedEngine(load_scenario("no-drift").resolve(0), EAGLE, traffic=False)
    events: list[TokenEvent] = []
    request = engine.submit(RequestSpec("new", 40, 50, ignore_eos=True, sink=events.append))
    assert engine.has_listeners
    engine.advance(5.0)
    assert sum(event.tokens for event in events) == 50
    assert [e.finished_reason for e in events][-1] == "length"
    assert all(e.finished_reason is None for e in events[:-1])
    assert events[0].drafted == 0
    assert all(event.drafted == 3 for event in events[1:])
    assert events[-1].at == request.last_token
    assert engine.classes == ["chat", "code", "new"]
    assert not engine.has_listeners
    assert int(engine.statistics.output_tokens[2]) == 50


def test_classes_are_capped_and_folded_into_other() -> None:
    engine = SimulatedEngine(load_scenario("no-drift").resolve(0), None, traffic=False)
    for i in range(40):
        engine.submit(RequestSpec(f"class-{i}", 10, 4))
    engine.advance(5.0)
    assert len(engine.classes) == 18
    assert engine.classes[-1] == "other"
    assert sum(engine.statistics.outcomes.values()) == 40
    assert engine.statistics.outcomes[(17, "success")] == 25


def test_abort_running_waiting_and_ended() -> None:
    engine = SimulatedEngine(
        load_scenario("no-drift").resolve(0), EAGLE, traffic=False, max_num_seqs=1
    )
    events: list[TokenEvent] = []
    running = engine.submit(RequestSpec("chat", 10, 500, ignore_eos=True, sink=events.append))
    waiting = engine.submit(RequestSpec("chat", 10, 500))
    engine.advance(0.5)
    assert (engine.running, engine.waiting) == (1, 1)
    engine.abort(waiting)
    engine.abort(running)
    before = len(events)
    engine.advance(1.0)
    engine.abort(running)
    assert (engine.running, engine.waiting) == (0, 0)
    assert len(events) == before
    assert engine.statistics.success == {"abort": 2}
    assert engine.statistics.end_to_end.count == 0
    (finished,) = engine.statistics.finished.values()
    assert finished.requests == 1


def test_a_queue_forms_when_the_batch_is_full() -> None:
    engine = SimulatedEngine(load_scenario("no-drift").resolve(0), None, max_num_seqs=4)
    engine.advance(10.0)
    assert engine.running == 4
    assert engine.waiting > 0
    assert engine.statistics.queue.total > 1.0


def test_a_restart_of_the_story_loses_requests_and_counters() -> None:
    resolved = load_scenario("weights-changed").resolve(0)
    (restart,) = resolved.restarts
    engine = SimulatedEngine(resolved, EAGLE, epoch=1000.0)
    lost: list[TokenEvent] = []
    engine.advance(restart.at - 0.05)
    engine.submit(RequestSpec("chat", 10, 500, ignore_eos=True, sink=lost.append))
    engine.advance(restart.at + 1.0)
    assert not engine.up
    assert lost[-1].finished_reason == "error"
    with pytest.raises(TargetUnreachable):
        engine.exposition()
    with pytest.raises(TargetUnreachable):
        engine.submit(RequestSpec("chat", 10))
    engine.advance(restart.at + 3.0)
    assert engine.up
    started = restart.at + restart.down_seconds
    page = engine.exposition()
    assert f"process_start_time_seconds {1000.0 + started!r}"[:38] in page
    assert 0 < engine.statistics.first_token.count < 40
    engine.advance(restart.at + 30.0)
    total = drafts(engine.statistics)
    assert total["accepted"] / total["tokens"] < 0.12


def test_restart_with_another_config_goes_on_in_the_story() -> None:
    resolved = load_scenario("drift-to-off").resolve(0)
    engine = SimulatedEngine(resolved, EAGLE)
    engine.advance(20.0)
    engine.restart(None)
    assert not engine.up
    engine.advance(21.9)
    assert not engine.up
    engine.advance(25.0)
    assert engine.up
    assert engine.now == 25.0
    assert engine.config is None
    assert "spec_decode" not in engine.exposition()
    engine.restart(EAGLE, down_seconds=0.5)
    engine.advance(30.0)
    assert engine.num_speculative_tokens == 3
    with pytest.raises(SpecConfigError):
        engine.restart(SpecConfig({"method": "ngram", "bogus": 1}))
    assert engine.up


def test_a_process_that_starts_late_joins_the_same_story() -> None:
    resolved = load_scenario("weights-changed").resolve(0)
    late = SimulatedEngine(resolved, EAGLE, start_at=60.0)
    late.advance(90.0)
    assert late.up
    total = drafts(late.statistics)
    assert total["accepted"] / total["tokens"] < 0.12


def test_calibration_climbs_through_the_levels() -> None:
    resolved = load_scenario("drift-to-off").resolve(0)
    engine = SimulatedEngine(resolved, None, calibrate_seconds=16.0)
    seen = []
    for i in range(len(CALIBRATION_LEVELS)):
        engine.advance(2.0 * i + 1.9)
        seen.append(engine.running)
    assert seen == list(CALIBRATION_LEVELS)
    engine.advance(30.0)
    assert engine.running == 0
    times = engine.resolved.engine.step_time
    for (bucket, k), histogram in engine.statistics.step_seconds.items():
        assert k == 0
        assert histogram.count > 50
        low = times.base_seconds
        assert low < histogram.total / histogram.count < low + 0.009 * (bucket + 1)


def test_dynamic_k_follows_the_batch() -> None:
    config = SpecConfig(
        {**EAGLE.settings, "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 256, 0]]}
    )
    engine = SimulatedEngine(load_scenario("no-drift").resolve(0), config)
    engine.advance(30.0)
    assert {k for _, k in engine.statistics.step_seconds} == {0, 3}
    assert {bucket for _, bucket in engine.statistics.spec} <= {0, 1}


def test_prompt_lookup_proposes_no_draft_in_some_steps() -> None:
    engine = SimulatedEngine(load_scenario("no-drift").resolve(0), NGRAM_PRESET)
    engine.advance(30.0)
    decoded = engine.statistics.inter_token.count
    assert drafts(engine.statistics)["drafts"] / decoded == pytest.approx(0.8, abs=0.02)


def test_the_engine_refuses_what_its_version_refuses() -> None:
    bad = SpecConfig({"method": "ngram", "num_speculative_tokens": 4, "typo": 1})
    with pytest.raises(SpecConfigError, match="typo"):
        SimulatedEngine(load_scenario("no-drift").resolve(0), bad)
    old = changed("no-drift", version="0.8.5").resolve(0)
    with pytest.raises(SpecConfigError, match="eagle3"):
        SimulatedEngine(old, EAGLE)


def test_zero_acceptance_and_idle_engines_are_fine() -> None:
    scenario = load_scenario("no-drift")
    data = scenario.model_dump(by_alias=True)
    for spec in data["classes"].values():
        spec["acceptance"] = {"eagle3": 0.0}
    engine = SimulatedEngine(Scenario.model_validate(data).resolve(0), EAGLE)
    engine.advance(5.0)
    assert drafts(engine.statistics)["accepted"] == 0
    idle = SimulatedEngine(scenario.resolve(0), EAGLE, traffic=False)
    idle.advance(1e6)
    assert idle.now == 1e6
    idle.advance(5.0)
    assert idle.now == 1e6
    assert math.isfinite(idle.statistics.iteration.total)
