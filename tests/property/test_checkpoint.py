"""Checkpoints: every state of the core survives its text bit for bit."""

from __future__ import annotations

import functools
import json
import math
import struct
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdrift.core.detector import ChartState, DetectorConfig, Observation, Signal, step
from specdrift.core.economics import StepTimes
from specdrift.core.engines.model import EngineCounters, Histogram
from specdrift.core.loop import Decision, LoopState
from specdrift.core.pipeline import PipelineState
from specdrift.core.policy import Facts, Rollout, Rules
from specdrift.core.windows import Snapshot, Window
from specdrift.errors import StoreError
from specdrift.service import checkpoint

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.none() | st.booleans() | st.integers() | NUMBERS | st.text(max_size=8)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    float: NUMBERS,
    int: st.integers(-(10**9), 10**9),
    bool: st.booleans(),
    str: st.text(max_size=8),
    type(None): st.none(),
    object: PLAIN,
}


@functools.cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, by the annotations of its fields: a new field is covered at once."""
    arguments = get_args(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    if kind is Histogram:
        bounds = st.lists(NUMBERS, max_size=2).map(lambda b: (*b, math.inf))
        return st.builds(Histogram, bounds, values(tuple[float, ...]), NUMBERS, NUMBERS)
    if get_origin(kind) in (Union, UnionType):
        return st.one_of([values(one) for one in arguments])
    if get_origin(kind) is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if get_origin(kind) is tuple:
        return st.tuples(*map(values, arguments))
    if get_origin(kind) is Mapping:
        return st.dictionaries(*map(values, arguments), max_size=2)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = get_type_hints(kind)
    return st.builds(kind, **{f.name: values(hints[f.name]) for f in fields(kind)})


def bits(value: Any) -> Any:
    """Everything a value is made of, with floats as their 64 bits."""
    if is_dataclass(value):
        return [type(value).__name__, *(bits(getattr(value, f.name)) for f in fields(value))]
    if isinstance(value, Mapping):
        return {key: bits(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [bits(one) for one in value]
    return struct.pack("<d", value) if isinstance(value, float) else value


def same(value: Any) -> None:
    text = checkpoint.dump(value)
    json.loads(text, parse_constant=lambda _: pytest.fail("no such number in JSON"))
    assert bits(checkpoint.load(type(value), text)) == bits(value)
    assert checkpoint.dump(checkpoint.load(type(value), text)) == text


@given(values(PipelineState))
def test_pipeline_states_survive(value: PipelineState) -> None:
    same(value)


@given(values(LoopState))
def test_loop_states_survive(value: LoopState) -> None:
    same(value)


@given(values(Decision))
def test_decisions_survive(value: Decision) -> None:
    same(value)


@given(values(Window))
def test_windows_survive(value: Window) -> None:
    same(value)


@given(values(LoopState), values(Facts), values(Rules))
def test_inputs_survive(loop: LoopState, now: Facts, policy: Rules) -> None:
    same(now)
    same(policy)
    back = checkpoint.load_inputs(checkpoint.dump_inputs(loop, now, policy))
    assert bits(back) == bits((loop, now, policy))


def test_values_that_are_no_class_of_their_own() -> None:
    value = {"a": Snapshot("a", 0.1, EngineCounters("vllm", "m", "0", running=1 / 3), None)}
    kind = dict[str, Snapshot]
    assert checkpoint.load(kind, checkpoint.dump(value, kind)) == value


@pytest.fixture(scope="module")
def config() -> DetectorConfig:
    """Settings whose thresholds have been solved for: that takes longer than the test may."""
    config = DetectorConfig(phase_one=40.0, scrape_interval=1.0)
    follow(config, saved=False)
    return config


def follow(config: DetectorConfig, *, saved: bool) -> tuple[ChartState, list[Signal]]:
    """Run a chart over a drop, saved and loaded after every window or not."""
    state, found = ChartState(), []
    for i in range(160):
        accepted = (60.0 if i < 80 else 35.0) + 7.0 * math.sin(i * 1.7)
        observation = Observation(float(i), i + 1.0, 33.0, 100.0, accepted)
        state, signal = step(state, observation, config)
        found += [signal] if signal else []
        if saved:
            state = checkpoint.load(ChartState, checkpoint.dump(state))
    return state, found


def test_a_chart_goes_on_as_if_nothing_had_happened(config: DetectorConfig) -> None:
    assert bits(follow(config, saved=True)) == bits(follow(config, saved=False))
    assert follow(config, saved=True)[1]


def test_a_pipeline_in_the_middle_of_phase_one_takes_no_time() -> None:
    chart = ChartState(
        drafts=tuple(100 + i / 3 for i in range(500)),
        acceptance=tuple(0.5 + i / 7777 for i in range(500)),
    )
    state = PipelineState(charts={f"class{i}|eagle3:3": chart for i in range(3)})
    checkpoint.load(PipelineState, checkpoint.dump(state))
    took = []
    for _ in range(5):
        start = time.perf_counter()
        checkpoint.load(PipelineState, checkpoint.dump(state))
        took.append(time.perf_counter() - start)
    assert min(took) < 0.010


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "damaged"),
        ("not JSON", "damaged"),
        ("[]", "damaged"),
        ("[" * 100_000, "damaged"),
        ('{"version":1}', "damaged"),
        ('{"version":1,"type":"PipelineState","data":{"charts":3}}', r"damaged.*data\.charts"),
        ('{"version":1,"type":"LoopState","data":{}}', "damaged.*it holds a LoopState"),
        ('{"version":7,"type":"PipelineState","data":{}}', "another version.*its version is 7"),
        ('{"version":7,"type":"PipelineState","data":[]}', "another version.*its version is 7"),
    ],
)
def test_what_cannot_be_read_says_what_is_lost(text: str, why: str) -> None:
    with pytest.raises(StoreError, match=why) as caught:
        checkpoint.load(PipelineState, text, where="state/specdrift.db")
    sentence = str(caught.value)
    assert "the learned baselines" in sentence
    assert "starts learning anew" in sentence
    assert "state/specdrift.db" in sentence
    assert "\n" not in sentence


def test_inputs_that_cannot_be_read() -> None:
    good = checkpoint.dump_inputs(LoopState(), replace(FACTS, now=1.0), Rules())
    assert checkpoint.load_inputs(good)[1].now == 1.0
    for text, why in (("{}", "damaged"), (good.replace('"version":1', '"version":2'), "version")):
        with pytest.raises(StoreError, match=f"{why}.*cannot be explained"):
            checkpoint.load_inputs(text)


FACTS = Facts(0.0, "w", (), (), StepTimes(), None, None, Rollout("ready"))


@pytest.mark.parametrize("text", ["", "[]", "3", "{"])
def test_plain_documents(text: str) -> None:
    assert checkpoint.load_plain('{"mode":"act"}') == {"mode": "act"}
    with pytest.raises(StoreError, match="damaged"):
        checkpoint.load_plain(text)
