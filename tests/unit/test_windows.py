"""Two snapshots -> a window, or the state that says why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdrift.core.engines.model import (
    ClassCounters,
    ClassSteps,
    EngineCounters,
    Histogram,
    SpecCounters,
)
from specdrift.core.windows import (
    Snapshot,
    WindowState,
    add_spec,
    subtract_spec,
    window_between,
)

BEFORE = EngineCounters(
    "vllm",
    "llama",
    "0",
    process_start=1000.0,
    spec=SpecCounters(100.0, 300.0, 150.0, (80.0, 50.0, 20.0)),
    generation_tokens=500.0,
    first_tokens=10.0,
    requests_finished=8.0,
    steps=40.0,
    request_steps=110.0,
    request_step_seconds=2.0,
    running=3.0,
    waiting=0.0,
    by_class=(ClassCounters("chat", 3, SpecCounters(60.0, 180.0, 120.0, (50.0, 40.0, 30.0))),),
    class_output_tokens={"chat": 300.0},
    class_steps=(ClassSteps("chat", "2-8", 60.0, 1.2),),
)
AFTER = replace(
    BEFORE,
    spec=SpecCounters(150.0, 450.0, 200.0, (110.0, 65.0, 25.0)),
    generation_tokens=650.0,
    first_tokens=12.0,
    requests_finished=9.0,
    steps=60.0,
    request_steps=170.0,
    request_step_seconds=3.5,
    running=4.0,
    waiting=2.0,
    by_class=(
        ClassCounters("chat", 3, SpecCounters(70.0, 210.0, 140.0, (58.0, 47.0, 35.0))),
        ClassCounters("code", 3, SpecCounters(20.0, 60.0, 10.0, (8.0, 2.0, 0.0))),
    ),
    class_output_tokens={"chat": 340.0, "code": 30.0},
    class_steps=(
        ClassSteps("chat", "2-8", 80.0, 1.6),
        ClassSteps("chat", "9-32", 5.0, 0.2),
        ClassSteps("code", "2-8", 20.0, 0.5),
    ),
)


def between(before: EngineCounters | None, after: EngineCounters | None, seconds: float = 10.0):
    first = Snapshot("i", 5000.0, before) if before is not None else None
    return window_between(first, Snapshot("i", 5000.0 + seconds, after, None))


def test_counts_of_an_ordinary_window() -> None:
    window = between(BEFORE, AFTER)
    assert window.state is WindowState.OK
    assert (window.start, window.end, window.seconds) == (5000.0, 5010.0, 10.0)
    assert window.spec == SpecCounters(50.0, 150.0, 50.0, (30.0, 15.0, 5.0))
    assert window.generation_tokens == 150.0
    assert window.first_tokens == 2.0
    assert window.requests_finished == 1.0
    assert window.mean_running == pytest.approx(60 / 20)
    assert window.request_step_seconds == 1.5
    assert window.num_speculative_tokens == 3
    assert (window.running, window.waiting) == (4.0, 2.0)


def test_classes_of_a_window() -> None:
    window = between(BEFORE, AFTER)
    found = {c.traffic_class: c for c in window.by_class}
    assert found["chat"].spec == SpecCounters(10.0, 30.0, 20.0, (8.0, 7.0, 5.0))
    assert found["code"].spec == SpecCounters(20.0, 60.0, 10.0, (8.0, 2.0, 0.0))
    assert found["code"].acceptance == pytest.approx(1 / 6)
    assert window.class_output_tokens == {"chat": 40.0, "code": 30.0}
    assert window.class_step_seconds == {"chat": pytest.approx(0.6), "code": 0.5}


def test_a_class_without_drafts_in_the_window_is_left_out() -> None:
    idle = replace(AFTER, by_class=BEFORE.by_class)
    assert between(BEFORE, idle).by_class == ()


def test_no_traffic_is_not_zero_acceptance() -> None:
    window = between(BEFORE, BEFORE)
    assert window.state is WindowState.NO_TRAFFIC
    assert window.by_class == ()


def test_the_first_scrape_has_nothing_before_it() -> None:
    window = between(None, AFTER)
    assert window.state is WindowState.FIRST
    assert window.spec is None
    assert window.model_name == "llama"


def test_down() -> None:
    assert between(BEFORE, None).state is WindowState.DOWN


def test_missed_scrapes_telescope() -> None:
    window = between(BEFORE, AFTER, seconds=75.0)
    assert window.state is WindowState.OK
    assert window.seconds == 75.0
    assert window.spec is not None
    assert window.spec.drafts == 50.0


@pytest.mark.parametrize("seconds", [0.0, -30.0])
def test_a_clock_that_goes_back(seconds: float) -> None:
    window = between(BEFORE, AFTER, seconds=seconds)
    assert window.state is WindowState.CLOCK_WENT_BACK
    assert window.spec is None
    assert window.seconds == 0.0


def test_a_new_process_counts_from_its_start() -> None:
    fresh = replace(AFTER, process_start=4990.0)
    window = between(BEFORE, fresh)
    assert window.state is WindowState.RESTARTED
    assert window.spec == AFTER.spec
    assert window.generation_tokens == AFTER.generation_tokens


def test_a_start_time_that_jitters_is_no_restart() -> None:
    assert between(BEFORE, replace(AFTER, process_start=1000.4)).state is WindowState.OK


@pytest.mark.parametrize(
    "reset",
    [
        {"generation_tokens": 3.0},
        {"request_steps": 3.0},
        {"spec": SpecCounters(99.0, 450.0, 200.0, (1.0, 1.0, 1.0))},
        {"spec": SpecCounters(150.0, 299.0, 200.0, (1.0, 1.0, 1.0))},
    ],
)
def test_a_counter_that_falls_is_a_restart(reset: dict[str, object]) -> None:
    no_start = replace(BEFORE, process_start=None)
    window = between(no_start, replace(AFTER, process_start=None, **reset))  # type: ignore[arg-type]
    assert window.state is WindowState.RESTARTED


def test_accepted_tokens_that_fall_are_no_window_to_measure() -> None:
    """Every other counter grew, this one fell: negative acceptance is never OK."""
    spec = SpecCounters(150.0, 450.0, 100.0, (110.0, 65.0, 25.0))
    window = between(BEFORE, replace(AFTER, spec=spec))
    assert window.state in (WindowState.MISSING, WindowState.RESTARTED)


def test_a_restart_of_an_engine_that_exports_the_start_to_speculation_off() -> None:
    off = replace(AFTER, process_start=4990.0, spec=None)
    assert between(BEFORE, off).state is WindowState.RESTARTED
    assert between(off, replace(off, generation_tokens=900.0)).state is WindowState.SPECULATION_OFF


def test_speculation_off_and_series_that_cannot_be_read_are_two_things() -> None:
    off = replace(BEFORE, spec=None)
    assert between(off, off).state is WindowState.SPECULATION_OFF
    damaged = replace(AFTER, spec=None, damaged=("vllm:spec_decode_num_drafts_total",))
    assert between(BEFORE, damaged).state is WindowState.MISSING


def test_speculation_that_appears_without_a_restart_has_no_counts_yet() -> None:
    window = between(replace(BEFORE, spec=None), AFTER)
    assert window.spec is None
    assert window.state in (WindowState.FIRST, WindowState.K_CHANGED)


def test_another_k_is_never_compared() -> None:
    wider = replace(AFTER, spec=SpecCounters(150.0, 450.0, 200.0, (110.0, 65.0, 25.0, 1.0)))
    assert between(BEFORE, wider).state is WindowState.K_CHANGED
    assert between(BEFORE, replace(AFTER, method="ngram")).state is WindowState.K_CHANGED


def test_more_accepted_than_drafted_cannot_be() -> None:
    broken = replace(AFTER, spec=SpecCounters(150.0, 450.0, 301.0, (110.0, 65.0, 25.0)))
    assert between(BEFORE, broken).state is WindowState.MISSING


def test_what_the_page_does_not_carry_stays_unknown() -> None:
    before = replace(BEFORE, steps=None, requests_finished=None)
    window = between(before, AFTER)
    assert window.steps is None
    assert window.requests_finished is None
    assert window.mean_running == 4.0  # the gauge, where the engine does not count steps


def test_latency_of_the_window() -> None:
    early = Histogram((0.01, float("inf")), (1.0, 2.0), 0.05, 2.0)
    late = Histogram((0.01, float("inf")), (4.0, 6.0), 0.09, 6.0)
    window = between(
        replace(BEFORE, time_per_output_token=early), replace(AFTER, time_per_output_token=late)
    )
    assert window.time_per_output_token == Histogram(
        (0.01, float("inf")), (3.0, 4.0), pytest.approx(0.04), 4.0
    )
    assert between(BEFORE, replace(AFTER, time_per_output_token=late)).time_per_output_token is None


def test_sums_and_differences_of_counts() -> None:
    one, two = SpecCounters(1.0, 2.0, 1.0, (1.0,)), SpecCounters(10.0, 20.0, 10.0, (6.0, 4.0))
    assert add_spec(one, two) == SpecCounters(11.0, 22.0, 11.0, (7.0, 4.0))
    assert subtract_spec(one, add_spec(one, two)).drafts == two.drafts
