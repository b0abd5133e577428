"""Scenario files: shipped ones, bad ones, and what a seed draws."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from specdrift.errors import ScenarioError
from specdrift.sim.resolved import Track
from specdrift.sim.scenario import load_scenario, parse_scenario, scenario_schema, shipped_scenarios

SHIPPED = [
    "drift-to-ngram",
    "drift-to-off",
    "harmful-fallback",
    "mix-shift",
    "no-drift",
    "overload-at-high-acceptance",
    "restart-unchanged",
    "weights-changed",
]
SMALL = """
version: 1
name: small
duration_seconds: 60
engine: {step_time: {base_seconds: 0.01, per_token_seconds: 0.0}}
classes:
  a: {arrivals_per_second: 1, output_tokens: {mean: 10}, acceptance: {eagle3: 0.8}}
  b: {arrivals_per_second: 2, output_tokens: {mean: 10}, acceptance: {eagle3: 0.6, ngram: 0.3}}
"""


def test_all_shipped_scenarios_are_valid_and_named_like_their_file() -> None:
    assert shipped_scenarios() == SHIPPED
    schema = scenario_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for name in SHIPPED:
        scenario = load_scenario(name)
        assert scenario.name == name
        assert scenario.description
        jsonschema.validate(json.loads(scenario.model_dump_json(by_alias=True)), schema)


def test_a_file_is_read_as_yaml_or_json(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SMALL)
    scenario = load_scenario(path)
    other = tmp_path / "mine.json"
    other.write_text(scenario.model_dump_json(by_alias=True))
    assert load_scenario(str(other)) == scenario


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("name: small", "name: small\ncolour: red", "unknown key 'colour'"),
        ("mean: 10", "mean: 10, shape: 2", "unknown key 'classes.a.output_tokens.shape'"),
        ("eagle3: 0.8", "eagle3: 1.8", "'classes.a.acceptance.eagle3'"),
        ("duration_seconds: 60", "", "'duration_seconds'"),
        ("version: 1", "version: 2", "'version'"),
        ("version: 1", "version: [", "not valid YAML"),
        (SMALL, "", "empty"),
        (SMALL, "- 1", "not a mapping"),
        (
            "name: small",
            "name: small\nevents: [{at: 1, type: acceptance, class: z, to: {ngram: 0.1}}]",
            "unknown class 'z'",
        ),
        (
            "name: small",
            "name: small\nevents: [{at: 1, type: acceptance, class: a, tu: {ngram: 0.1}}]",
            "'events.0.t",
        ),
        ("name: small", "name: small\nevents: [{at: 1, type: storm}]", "'events.0'"),
        ("name: small", "name: small\nvary: {size: [2, 1]}", "low <= high"),
        ("name: small", "name: small\nname: again", "not valid YAML"),
    ],
)
def test_a_bad_file_is_one_sentence_that_names_the_field(old: str, new: str, part: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(SMALL.replace(old, new), where="mine.yaml")
    assert part in str(caught.value)
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"drift-to-off.*weights-changed"):
        load_scenario("drift-to-nowhere")
    with pytest.raises(ScenarioError, match="cannot read"):
        load_scenario(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not a text file"):
        load_scenario(tmp_path / "binary")


def test_a_track_ramps() -> None:
    track = Track(1.0)
    track.ramp(10.0, 3.0, 4.0)
    track.ramp(20.0, 0.0, 0.0)
    assert [track.at(t) for t in (-1.0, 10.0, 12.0, 14.0, 19.9, 20.0, 99.0)] == [
        1.0,
        1.0,
        2.0,
        3.0,
        3.0,
        0.0,
        0.0,
    ]
    assert track.highest == 3.0


def test_a_ramp_that_is_interrupted_goes_on_from_where_it_was() -> None:
    track = Track(0.0)
    track.ramp(0.0, 10.0, 10.0)
    track.ramp(5.0, 0.0, 5.0)
    assert [track.at(t) for t in (5.0, 7.5, 10.0, 20.0)] == [5.0, 2.5, 0.0, 0.0]


def test_the_seed_decides_and_nothing_else() -> None:
    scenario = load_scenario("drift-to-off")
    one, again, two = scenario.resolve(1), scenario.resolve(1), scenario.resolve(2)
    assert one.event_times == again.event_times != two.event_times
    assert (one.size, one.load) == (again.size, again.load) != (two.size, two.load)
    assert scenario.resolve().seed == scenario.seed
    assert one.onset is not None
    assert 32.0 <= one.onset <= 40.0
    assert one.change_times("chat") == ()
    assert one.change_times("code")[0] == one.onset
    assert one.truth("code", "eagle3", one.onset - 0.1) == 0.82
    assert one.truth("code", "eagle3", one.onset + 4.0) == pytest.approx(0.82 - 0.76 * one.size)
    assert one.truth("code", "eagle3", 149.0) == pytest.approx(0.82)
    assert one.truth("code", "eagle", 0.0) == 0.82
    assert one.truth("unheard-of", "eagle3", 0.0) == pytest.approx(0.76)
    assert one.truth("code", "draft_model", 0.0) == 0.82


def test_load_and_mix_change_arrivals() -> None:
    overload = load_scenario("overload-at-high-acceptance").resolve(3)
    assert overload.onset is not None
    before, after = (overload.arrivals("chat", overload.onset + dt) for dt in (-1.0, 10.0))
    assert after == pytest.approx(2.8 * before)
    assert overload.highest_arrivals("chat") >= after
    mix = load_scenario("mix-shift").resolve(3)
    assert mix.onset is not None
    late = mix.onset + 10.0
    assert mix.arrivals("chat", late) / mix.arrivals("code", late) == pytest.approx(4.0)
    assert mix.arrivals("nobody", late) == 0.0


def test_restarts_carry_what_changes() -> None:
    changed = load_scenario("weights-changed").resolve(0)
    unchanged = load_scenario("restart-unchanged").resolve(0)
    assert [r.changed for r in (*changed.restarts, *unchanged.restarts)] == [True, False]
    (restart,) = changed.restarts
    assert restart.down_seconds == 2.0
    assert changed.truth("code", "eagle3", restart.at) < 0.3
    assert changed.version_at(99.0) == "0.32.0"
    assert load_scenario("no-drift").resolve(0).onset is None
