"""The page's parts without a browser: fetching bit by bit, gaps, stretches, comparisons."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.conftest import require_package
from tests.contract.dashboard_fake import FakeApi, recorded

require_package("streamlit")

import charts  # noqa: E402
import segments  # noqa: E402
import timeline  # noqa: E402
import words  # noqa: E402
from answers import Alarm, Decision, Point, State  # noqa: E402
from client import Api  # noqa: E402
from history import History  # noqa: E402
from theme import Frame, Look  # noqa: E402

STORY = tuple(Point.of(p) for p in recorded("series")["points"])
ALARMS = tuple(Alarm.of(a) for a in recorded("alarms")["alarms"])
DECISIONS = tuple(Decision.of(d) for d in recorded("decisions")["decisions"])


def frame(points: tuple[Point, ...] = STORY) -> Frame:
    return Frame(points, points[0].time, points[-1].time, 0.5, Look())


def test_only_new_points_are_fetched() -> None:
    with FakeApi() as api:
        later = api.points.pop()
        now = [1000.0]
        history = History(Api(api.url), clock=lambda: now[0])
        first = history.get()
        assert history.get().points is first.points  # asked again at once: not fetched
        now[0] += 2.0
        api.points.append(later)
        second = history.get()
        assert len(second.points) == len(first.points) + 1
        asked = [path for path in api.asked if "series" in path]
        assert len(asked) == 2
        assert f"since={first.points[-1].time}" in asked[1]


def test_a_store_begun_anew_forgets_the_old_points() -> None:
    with FakeApi() as api:
        now = [1000.0]
        history = History(Api(api.url), clock=lambda: now[0])
        assert len(history.get().points) == len(STORY)
        api.state["workload"] = "another"
        api.points = api.points[:3]
        now[0] += 2.0
        assert len(history.get().points) == 3


def test_a_longer_range_is_fetched_once() -> None:
    with FakeApi() as api:
        now = [1000.0]
        history = History(Api(api.url), clock=lambda: now[0])
        history.get(3600.0)
        history.get(3600.0)
        history.get(3600.0)
        limits = [path.rpartition("limit=")[2] for path in api.asked if "series" in path]
        assert limits == ["600", "5000"]


def test_gaps_stay_gaps() -> None:
    holed = (*STORY[40:60], *STORY[80:100])
    drawn = frame(holed).values(lambda p: p.acceptance, None)
    assert len(drawn["y"]) == 41
    assert drawn["y"][20] is None
    assert drawn["connectgaps"] is False


def test_a_state_without_news_is_a_gap() -> None:
    down = tuple(replace(p, state="down") for p in STORY[40:60])
    assert set(frame(down).values(lambda p: p.running, segments.GOOD)["y"]) == {None}


def test_rungs_in_force() -> None:
    spans = segments.rung_spans(STORY)
    assert [s.rung for s in spans] == ["as-found", "off", "as-found", "off", "as-found"]
    assert all(a.end == b.start for a, b in pairwise(spans))


def test_comparisons_newest_first_with_the_alarm_as_start() -> None:
    found = segments.comparisons(STORY, ALARMS, DECISIONS, words.clock())
    kinds = [c.kind for c in found]
    assert kinds == ["probe", "fall_back", "probe", "act", "alarm"]
    act = found[kinds.index("act")]
    assert act.before[0] == pytest.approx(min(a.time for a in ALARMS))
    assert act.before_name == "as found"
    assert act.after[0] > act.before[1]


def test_events_carry_their_sentence() -> None:
    events = timeline.events(ALARMS, DECISIONS, words.clock())
    assert [e.name for e in events] == [
        "alarm: code",
        "switched to off",
        "verified",
        "probing",
        "fell back to off",
        "probing",
        "back: code",
        "recovered",
    ]
    assert "95% -0.51 to -0.35" in events[0].sentence
    assert events[1].sentence == DECISIONS[-1].sentence


def test_figures_are_json_without_nan() -> None:
    events = timeline.events(ALARMS, DECISIONS, words.clock())
    here = frame()
    for figure in (
        timeline.acceptance(here, ("chat", "code"), events, 0.34),
        timeline.acceptance(here, ("code",), (), None),
        charts.cusum(here, ("chat", "code"), ALARMS),
        charts.speedup(here),
        charts.tpot(here),
        charts.ttft(here),
        charts.cost(here),
        charts.load(here),
    ):
        json.dumps(figure, allow_nan=False)


def test_figures_of_nothing_known() -> None:
    blank = Point.of({"time": 1.8e9, "state": "first", "rung": "as-found"})
    here = Frame((blank,), blank.time, blank.time, 1.0, Look(dark=True))
    for draw in (charts.speedup, charts.tpot, charts.cost, charts.load):
        json.dumps(draw(here), allow_nan=False)
    json.dumps(timeline.acceptance(here, ("a",), (), None), allow_nan=False)


def test_thinning_keeps_turns_and_the_newest() -> None:
    thin, step = segments.thin(STORY, 50)
    assert step == -(-len(STORY) // 50)
    assert thin[-1] is STORY[-1]
    assert [s.rung for s in segments.rung_spans(thin)] == [
        s.rung for s in segments.rung_spans(STORY)
    ]


def test_answers_of_another_version() -> None:
    state = State.of({"workload": "w", "time": 5, "classes": [{}, 3], "benefit": {"value": "x"}})
    assert state.workload == "w"
    assert state.benefit is None
    assert len(state.classes) == 1
    point = Point.of({"time": float("nan"), "classes": {"a": None}, "running": True})
    assert point.running is None
    assert point.classes["a"].acceptance is None


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (0.010, 0.005, "50% faster"),
        (0.010, 0.020, "100% slower"),
        (0.010, 0.01001, "unchanged"),
        (None, 0.1, "not comparable"),
        (0.0, 0.1, "not comparable"),
    ],
)
def test_change_in_words(before: float | None, after: float, said: str) -> None:
    assert segments.change(before, after) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(12.4, "12 s"), (180, "3 min"), (9000, "2.5 h"), (2592000, "30 d")],
)
def test_span(seconds: float, said: str) -> None:
    assert words.span(seconds) == said
