"""The numbers people ask for, out of two readings of one or several engines."""

from __future__ import annotations

import pytest

from specdrift.adapters.exposition import parse_exposition
from specdrift.core.engines import registry
from specdrift.core.summary import EngineState, EngineSummary, break_even, summarise
from specdrift.core.windows import Snapshot, window_between
from tests.support.pages import vllm_page


def view(before: str | None, after: str, seconds: float = 2.0) -> EngineSummary:
    old = {
        (e.model_name, e.engine): Snapshot("x", 0.0, e)
        for e in (registry.read_page(parse_exposition(before)) if before else ())
    }
    read = []
    for engine in registry.read_page(parse_exposition(after)):
        snapshot = Snapshot("x", seconds, engine)
        pair = (engine.model_name, engine.engine)
        read.append((engine, window_between(old.get(pair), snapshot)))
    return summarise(read, engine=read[0][0].engine if len(read) == 1 else "")


AFTER = vllm_page(
    140, 420, 180, generated=500, steps=240, step_seconds=2.6, positions=(100, 58, 22)
)


def test_since_start_and_window() -> None:
    got = view(vllm_page(), AFTER)
    assert got.state is EngineState.OK
    assert got.since_start is not None
    assert got.since_start.acceptance == 180 / 420
    assert got.since_start.mean_acceptance_length == 1 + 180 / 140
    assert got.window is not None
    assert got.window.spec.acceptance == 30 / 120
    assert got.window.spec.mean_acceptance_length == 1 + 30 / 40
    assert got.window.spec.per_position == (0.5, 0.2, 0.05)
    assert got.window.tokens_per_second == 50.0
    assert got.window.step_seconds == pytest.approx(0.6 / 40)
    # No request finished, so the time per token comes from steps: 0.6 s for 100 tokens.
    assert got.window.time_per_output_token_source == "steps"
    assert got.window.time_per_output_token_seconds == pytest.approx(0.006)
    assert (got.window.running, got.window.waiting) == (2, 1)
    assert got.num_speculative_tokens == 3


def test_nothing_happened_is_no_traffic_and_no_ratio() -> None:
    got = view(vllm_page(), vllm_page())
    assert got.state is EngineState.NO_TRAFFIC
    assert got.window is not None
    assert got.window.spec.acceptance is None
    assert got.window.time_per_output_token_seconds is None
    assert got.window.step_seconds is None


def test_tokens_without_drafts() -> None:
    got = view(vllm_page(), vllm_page(generated=450, steps=250))
    assert got.state is EngineState.NO_DRAFTS


def test_speculation_off() -> None:
    off = vllm_page(speculation=False)
    got = view(off, vllm_page(speculation=False, generated=500))
    assert got.state is EngineState.SPECULATION_OFF
    assert got.since_start is None
    assert got.window is not None
    assert got.window.tokens_per_second == 50.0
    assert break_even(got, 0.005).verdict == "not_applicable"


def test_restart_takes_the_new_values_and_claims_no_rate() -> None:
    got = view(vllm_page(), vllm_page(10, 30, 6, generated=40, steps=20, start=2000.0))
    assert got.state is EngineState.RESTARTED
    assert got.window is not None
    assert got.window.spec.acceptance == 0.2
    assert got.window.tokens_per_second is None


def test_damage_is_missing_not_off() -> None:
    got = view(vllm_page(), vllm_page(drafts="NaN"))
    assert got.state is EngineState.MISSING
    assert got.since_start is None
    assert got.missing


def test_the_first_reading_has_no_window() -> None:
    got = view(None, vllm_page())
    assert got.state is EngineState.FIRST
    assert got.window is None
    assert got.since_start is not None
    assert got.since_start.acceptance == 0.5


def test_engines_of_one_model_add_up_before_dividing() -> None:
    second = 'engine="1",model_name="m"'
    before = vllm_page() + vllm_page(10, 30, 3, labels=second, head=False)
    after = AFTER + vllm_page(20, 60, 33, labels=second, head=False, generated=450)
    got = view(before, after)
    assert got.engine == ""
    assert got.window is not None
    assert got.window.spec.acceptance == (30 + 30) / (120 + 30)
    assert got.window.tokens_per_second == 75.0
    assert got.window.running == 4


def test_part_of_the_engines_unknown_is_unknown() -> None:
    second = 'engine="1",model_name="m"'
    before = vllm_page() + vllm_page(labels=second, head=False)
    after = AFTER + vllm_page(labels=second, head=False, drafts="NaN")
    got = view(before, after)
    assert got.state is EngineState.MISSING
    assert got.since_start is None
    assert got.window is not None
    assert got.window.spec.acceptance is None


@pytest.mark.parametrize(
    ("reference", "verdict"),
    [(None, "unknown"), (0.009, "pays"), (0.00605, "even"), (0.003, "loses")],
)
def test_break_even(reference: float | None, verdict: str) -> None:
    got = break_even(view(vllm_page(), AFTER), reference)
    assert got.verdict == verdict
    assert got.why
    if reference:
        assert got.speedup == pytest.approx(reference / 0.006)


def test_break_even_without_tokens() -> None:
    assert break_even(view(vllm_page(), vllm_page()), 0.005).verdict == "unknown"
