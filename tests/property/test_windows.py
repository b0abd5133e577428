"""Whatever two pages say: no negative counts, no restart taken for traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from specdrift.core.engines.model import ClassCounters, EngineCounters, SpecCounters
from specdrift.core.estimators import Share, decompose
from specdrift.core.windows import (
    ClassWindow,
    Snapshot,
    Window,
    WindowState,
    add_spec,
    window_between,
)

COUNT = st.integers(0, 10**6).map(float)
MAYBE = st.none() | COUNT


@st.composite
def spec_counters(draw: st.DrawFn) -> SpecCounters:
    positions = draw(st.lists(COUNT, max_size=4))
    return SpecCounters(draw(COUNT), draw(COUNT), draw(COUNT), tuple(positions))


CLASSES = st.lists(
    st.builds(
        ClassCounters,
        st.sampled_from(["chat", "code"]),
        st.sampled_from([None, 2, 3]),
        spec_counters(),
    ),
    max_size=4,
    unique_by=lambda c: (c.traffic_class, c.num_speculative_tokens),
).map(tuple)

PAGES = st.builds(
    EngineCounters,
    st.just("vllm"),
    st.just("llama"),
    st.just("0"),
    process_start=st.sampled_from([None, 1000.0, 1000.5, 2000.0]),
    spec=st.none() | spec_counters(),
    generation_tokens=MAYBE,
    first_tokens=MAYBE,
    requests_finished=MAYBE,
    steps=MAYBE,
    request_steps=MAYBE,
    request_step_seconds=MAYBE,
    by_class=CLASSES,
    class_output_tokens=st.dictionaries(st.sampled_from(["chat", "code"]), COUNT),
    method=st.sampled_from([None, "eagle3"]),
)


def plain_counts(window: Window) -> list[float]:
    named = (
        window.generation_tokens,
        window.first_tokens,
        window.requests_finished,
        window.steps,
        window.request_steps,
        window.request_step_seconds,
    )
    return [v for v in named if v is not None]


def spec_counts(spec: SpecCounters) -> list[float]:
    return [spec.drafts, spec.draft_tokens, spec.accepted_tokens, *spec.accepted_per_position]


def class_counts(window: Window) -> list[float]:
    return [
        *(v for c in window.by_class for v in spec_counts(c.spec)),
        *window.class_output_tokens.values(),
        *window.class_step_seconds.values(),
    ]


def between(before: EngineCounters | None, after: EngineCounters | None, seconds: float) -> Window:
    first = None if before is None else Snapshot("i", 100.0, before)
    return window_between(first, Snapshot("i", 100.0 + seconds, after))


# A page of random counters finds the same few things again and again: no use in shrinking them.
found_at_once = settings(phases=[Phase.explicit, Phase.generate])
USED = (WindowState.OK, WindowState.NO_TRAFFIC, WindowState.SPECULATION_OFF)


@found_at_once
@given(PAGES, PAGES)
def test_speculative_counts_that_are_used_are_never_negative(
    before: EngineCounters, after: EngineCounters
) -> None:
    window = between(before, after, 10.0)
    if window.state in USED and window.spec is not None:
        assert min(spec_counts(window.spec)) >= 0
        assert window.spec.accepted_tokens <= window.spec.draft_tokens


@found_at_once
@given(PAGES, PAGES)
def test_other_counts_that_are_used_are_never_negative(
    before: EngineCounters, after: EngineCounters
) -> None:
    window = between(before, after, 10.0)
    if window.state in USED:
        assert min(plain_counts(window), default=0.0) >= 0


@found_at_once
@given(PAGES, PAGES)
def test_counts_of_classes_that_are_used_are_never_negative(
    before: EngineCounters, after: EngineCounters
) -> None:
    window = between(before, after, 10.0)
    if window.state in USED:
        assert min(class_counts(window), default=0.0) >= 0


NOW = EngineCounters(
    "vllm",
    "llama",
    "0",
    spec=SpecCounters(100.0, 300.0, 150.0, (80.0, 50.0, 20.0)),
    generation_tokens=500.0,
    first_tokens=10.0,
    requests_finished=8.0,
    steps=40.0,
    request_steps=110.0,
    request_step_seconds=2.0,
    by_class=(ClassCounters("chat", 3, SpecCounters(60.0, 180.0, 120.0, (50.0, 40.0, 30.0))),),
    class_output_tokens={"chat": 300.0},
)


def grown(page: EngineCounters, factor: float) -> EngineCounters:
    """Every counter of the page times a factor."""

    def times(spec: SpecCounters) -> SpecCounters:
        positions = tuple(a * factor for a in spec.accepted_per_position)
        return SpecCounters(
            spec.drafts * factor,
            spec.draft_tokens * factor,
            spec.accepted_tokens * factor,
            positions,
        )

    assert page.spec is not None
    plain = (
        "generation_tokens",
        "first_tokens",
        "requests_finished",
        "steps",
        "request_steps",
        "request_step_seconds",
    )
    return replace(
        page,
        **{name: getattr(page, name) * factor for name in plain},
        spec=times(page.spec),
        by_class=tuple(replace(c, spec=times(c.spec)) for c in page.by_class),
        class_output_tokens={n: v * factor for n, v in page.class_output_tokens.items()},
    )


@pytest.mark.parametrize(
    "field",
    [
        "generation_tokens",
        "request_steps",
        "spec",
        "first_tokens",
        "requests_finished",
        "steps",
        "request_step_seconds",
        "by_class",
    ],
)
def test_one_family_that_falls_is_never_a_negative_count(field: str) -> None:
    """No start time on the page (multiprocess mode), and one family began anew."""
    low = getattr(grown(NOW, 0.5), field)
    window = between(NOW, replace(grown(NOW, 2.0), **{field: low}), 10.0)
    if window.state in USED:
        counts = [*plain_counts(window), *class_counts(window)]
        assert window.spec is not None
        assert min([*counts, *spec_counts(window.spec)]) >= 0


@given(PAGES, PAGES)
def test_a_new_process_never_counts_what_the_old_one_did(
    before: EngineCounters, after: EngineCounters
) -> None:
    fresh = replace(after, process_start=5000.0)
    window = between(replace(before, process_start=1000.0), fresh, 10.0)
    assert window.state is WindowState.RESTARTED
    assert window.spec == fresh.spec
    assert window.generation_tokens == fresh.generation_tokens
    assert window.request_steps == fresh.request_steps


@given(PAGES, PAGES, st.sampled_from([0.0, -1.0, -1e9]))
def test_a_clock_that_does_not_go_on_gives_no_counts(
    before: EngineCounters, after: EngineCounters, seconds: float
) -> None:
    window = between(before, after, seconds)
    assert window.state is WindowState.CLOCK_WENT_BACK
    assert window.spec is None
    assert window.by_class == ()
    assert plain_counts(window) == []


@given(PAGES)
def test_a_page_compared_with_itself_is_no_traffic(page: EngineCounters) -> None:
    window = between(page, page, 10.0)
    assert window.state in (WindowState.NO_TRAFFIC, WindowState.SPECULATION_OFF)
    assert window.by_class == ()
    assert all(v == 0 for v in plain_counts(window))


@given(st.none() | PAGES)
def test_one_page_alone_or_none_is_a_state(page: EngineCounters | None) -> None:
    assert between(None, page, 10.0).state is (
        WindowState.DOWN if page is None else WindowState.FIRST
    )
    if page is not None:
        assert between(page, None, 10.0).state is WindowState.DOWN


@given(st.lists(spec_counters(), min_size=1, max_size=6), st.integers(1, 5))
def test_a_missed_scrape_telescopes(parts: list[SpecCounters], cut: int) -> None:
    """The counts over a gap are the sum of the counts in it."""
    totals = [SpecCounters(0.0, 0.0, 0.0, (0.0,) * 4)]
    for part in parts:
        totals.append(add_spec(totals[-1], part))
    pages = [EngineCounters("vllm", "llama", "0", spec=t) for t in totals]
    whole = between(pages[0], pages[-1], 10.0).spec
    middle = min(cut, len(pages) - 1)
    one, two = (
        between(pages[0], pages[middle], 5.0).spec,
        between(pages[middle], pages[-1], 5.0).spec,
    )
    assert whole is not None
    assert one is not None
    assert two is not None
    assert add_spec(one, two) == whole


RATES = st.floats(0, 1)
SHARES = st.dictionaries(
    st.sampled_from(["chat", "code", "batch", "rag"]),
    st.tuples(st.integers(0, 10**6).map(float), RATES),
    max_size=4,
)


def shares(found: dict[str, tuple[float, float]]) -> list[Share]:
    return [Share(n, tokens, tokens * rate) for n, (tokens, rate) in found.items()]


@given(SHARES, SHARES)
def test_mix_and_within_add_up(
    before: dict[str, tuple[float, float]], after: dict[str, tuple[float, float]]
) -> None:
    change = decompose(shares(before), shares(after))
    if change is None:
        return
    assert 0 <= change.distance <= 1 + 1e-9
    assert abs(sum(s0 for _, s0, _ in change.shares) - 1) < 1e-9
    assert abs(sum(s1 for _, _, s1 in change.shares) - 1) < 1e-9
    if change.within is not None:
        assert change.mix is not None
        assert abs(change.mix + change.within - (change.after - change.before)) < 1e-9


@given(SHARES)
def test_the_same_traffic_has_no_change(found: dict[str, tuple[float, float]]) -> None:
    change = decompose(shares(found), shares(found))
    if change is not None:
        assert abs(change.mix or 0.0) < 1e-12
        assert change.within is not None
        assert abs(change.within) < 1e-12
        assert change.distance < 1e-12


def test_a_window_of_a_class_without_tokens_has_no_acceptance() -> None:
    assert ClassWindow("chat", 3, SpecCounters(0.0, 0.0, 0.0)).acceptance is None
