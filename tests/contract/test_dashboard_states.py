"""The page in every state it can meet, run by Streamlit's own test harness against a fake API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdrift.service.views import (
    AlarmView,
    DecisionView,
    ExplanationView,
    PointView,
    StateView,
)
from tests.conftest import require_package
from tests.contract.dashboard_fake import PAGE, FakeApi, recorded

require_package("streamlit")

import streamlit as st  # noqa: E402
from streamlit.testing.v1 import AppTest  # noqa: E402

PAGES = ("views/overview.py", "views/latency.py", "views/decisions.py")


@pytest.fixture
def api() -> Iterator[FakeApi]:
    st.cache_resource.clear()
    st.cache_data.clear()
    with FakeApi() as fake:
        yield fake


@pytest.fixture
def opened(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("SPECDRIFT_API_URL", api.url)
    return AppTest.from_file(str(PAGE / "app.py"), default_timeout=30)


def words_of(page: AppTest) -> str:
    """Return all text of the page, without Markdown's escapes."""
    parts = [e.value for kind in ("markdown", "caption", "subheader") for e in page.get(kind)]
    parts += [e.value for e in (*page.error, *page.warning, *page.info)]
    parts += [f"{m.label} {m.value} {m.delta}" for m in page.metric]
    return re.sub(r"\\(?=[^A-Za-z0-9\s])", "", "\n".join(map(str, parts)))


def metric(page: AppTest, label: str) -> str:
    return next(f"{m.value} | {m.delta}" for m in page.metric if m.label == label)


def healthy(page: AppTest) -> str:
    assert not page.exception, page.exception[0].value
    said = words_of(page)
    assert not re.search(r"\b(nan|none|null|inf)\b", said, re.IGNORECASE), said
    return said


def test_recorded_answers_are_what_the_api_says_today() -> None:
    StateView.model_validate(recorded("state"))
    for point in recorded("series")["points"]:
        PointView.model_validate(point)
    for decision in recorded("decisions")["decisions"]:
        DecisionView.model_validate(decision)
    for alarm in recorded("alarms")["alarms"]:
        AlarmView.model_validate(alarm)
    for explanation in recorded("explain").values():
        ExplanationView.model_validate(explanation)


def test_healthy_workload(opened: AppTest) -> None:
    said = healthy(opened.run())
    assert "simulated-llama" in said
    assert "simulated engine" in said
    assert "watching" in said
    assert "Restored the original config" in said
    assert metric(opened, "Acceptance") == "0.65 | break-even 0.34"
    assert metric(opened, "Speed vs plain").startswith("1.44x")
    assert "At most one false alarm per 30 d" in said


def test_every_page_of_the_story(opened: AppTest) -> None:
    opened.run()
    for path in PAGES:
        said = healthy(opened.switch_page(path).run())
        assert "simulated-llama" in said
    rows = opened.table[0].value
    assert list(rows["decision"])[:2] == ["recovered", "probing"]
    assert any(cause == "content\u00a0drift" for cause in rows["cause"])


def test_explanation_of_a_decision(opened: AppTest) -> None:
    opened.run()
    said = healthy(opened.switch_page(PAGES[2]).run())
    assert "The same inputs give the same decision again." in said
    chooser = next(s for s in opened.selectbox if s.label == "Decision")
    said = healthy(chooser.select(1).run())
    assert "Switch to off for simulated-llama" in opened.code[0].value


def test_latency_before_and_after(opened: AppTest) -> None:
    opened.run()
    said = healthy(opened.switch_page(PAGES[1]).run())
    assert "Before (as found) → after (speculation off)" in said
    rows = opened.table[0].value
    assert list(rows["running"]) == ["9-32"]
    assert "faster" in rows["time per output token p99"][0]


def test_standing_drift_names_class_size_cause_and_advice(api: FakeApi, opened: AppTest) -> None:
    code = api.state["classes"][1]
    code.update(
        chart_phase="alarmed",
        side="drop",
        cause="content_drift",
        effect=-0.67,
        interval=[-0.73, -0.61],
        change_point=api.points[100]["time"],
        alarm_time=api.points[104]["time"],
        advice="retrain the draft on recent traffic of this class",
    )
    said = healthy(opened.run())
    assert "drift: code" in said
    assert "Class code dropped** from 0.69 to 0.02 (-0.67, 95% -0.73 to -0.61)" in said
    assert "the content of the class drifted. Retrain the draft" in said


def test_api_down_says_what_where_and_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    st.cache_resource.clear()
    monkeypatch.setenv("SPECDRIFT_API_URL", "http://127.0.0.1:9")
    page = AppTest.from_file(str(PAGE / "app.py"), default_timeout=30).run()
    said = healthy(page)
    assert "The specdrift API cannot be reached" in said
    assert "http://127.0.0.1:9" in said
    assert "nothing listens there" in said
    assert "SPECDRIFT_API_URL" in said


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (200, b"<html>Bad gateway</html>", "Something answered that is not the specdrift API"),
        (200, b"[1, 2]", "Something answered that is not the specdrift API"),
        (200, b"{}", "Something answered that is not the specdrift API"),
        (500, b"<html>oops</html>", "HTTP 500"),
        (503, b'{"error": "there is no state to show yet: no tick has completed"}', "first scrape"),
        (503, b'{"error": "cannot read the store (/x): disk I/O error"}', "disk I/O error"),
    ],
)
def test_strange_answers(
    api: FakeApi, opened: AppTest, status: int, body: bytes, sentence: str
) -> None:
    api.raw["state"] = (status, body)
    assert sentence in healthy(opened.run())


@pytest.mark.parametrize("url", ["", "ftp://x", "127.0.0.1:9470", "http://"])
def test_unusable_address(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    st.cache_resource.clear()
    monkeypatch.setenv("SPECDRIFT_API_URL", url)
    page = AppTest.from_file(str(PAGE / "app.py"), default_timeout=30).run()
    said = healthy(page)
    assert ("is not a URL" in said) or (url == "" and "cannot be reached" in said)


def test_api_goes_away_keeps_the_last_data(api: FakeApi, opened: AppTest) -> None:
    healthy(opened.run())
    api.raw["state"] = (500, b"")
    import history

    monkey = history.AT_MOST_EVERY
    history.AT_MOST_EVERY = 0.0
    try:
        said = healthy(opened.run())
    finally:
        history.AT_MOST_EVERY = monkey
    assert "refused to answer" in said
    assert "Below: the last data that were read." in said
    assert "simulated-llama" in said


def test_learning(api: FakeApi, opened: AppTest) -> None:
    for c, progress in zip(api.state["classes"], (0.6, 0.9), strict=True):
        c.update(
            chart_phase="learning", baseline=None, standard_error=None, phase_one_progress=progress
        )
    for point in api.points:
        for c in point["classes"].values():
            c.update(baseline=None, cusum=None)
    api.state.update(benefit=None, break_even_acceptance=None)
    api.state["cost"]["dollars_per_hour_gained"] = None
    said = healthy(opened.run())
    assert "learning the baseline: 60%" in said
    assert metric(opened, "Acceptance") == "0.65 | break-even not known yet"
    assert metric(opened, "Speed vs plain") == "not known yet | needs a time with it off"


def test_speculation_off(api: FakeApi, opened: AppTest) -> None:
    api.state.update(engine_state="speculation_off", rung="off", phase="standing")
    api.state.update(blended_acceptance=None, benefit=None, next_probe_at=4e9)
    for c in api.state["classes"]:
        c["acceptance"] = None
    said = healthy(opened.run())
    assert "speculation is off" in said
    assert "fallback in force" in said
    assert metric(opened, "Acceptance").startswith("off |")
    assert "Next probe in" in said


def test_no_traffic(api: FakeApi, opened: AppTest) -> None:
    api.state["engine_state"] = "no_traffic"
    for key in ("blended_acceptance", "benefit", "running", "tokens_per_second", "step_seconds"):
        api.state[key] = None
    api.state["cost"].update(dollars_per_million_tokens=None, dollars_per_hour_gained=None)
    for point in api.points:
        point.update(
            state="no_traffic",
            time_per_output_token=None,
            time_to_first_token=None,
            batch_bucket=None,
            classes={},
        )
    said = healthy(opened.run())
    assert "no traffic" in said
    assert metric(opened, "TPOT p99") == "no traffic | no finished request"
    healthy(opened.switch_page(PAGES[1]).run())


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("down", "did not answer the last scrape"),
        ("missing", "lacks the counters"),
        ("restarted", "engine restarted"),
        ("first", "first scrape"),
        ("clock_went_back", "clock went back"),
        ("k_changed", "draft length changed"),
        ("a state of a later version", "simulated-llama"),
    ],
)
def test_named_states(api: FakeApi, opened: AppTest, state: str, sentence: str) -> None:
    api.state["engine_state"] = state
    assert sentence in healthy(opened.run())


def test_empty_store(api: FakeApi, opened: AppTest) -> None:
    api.empty()
    said = healthy(opened.run())
    assert "No window stored yet" in said
    assert "No decision yet" in said
    assert "No window stored yet" in healthy(opened.switch_page(PAGES[1]).run())
    assert "No decision yet" in healthy(opened.switch_page(PAGES[2]).run())


def test_nothing_in_the_chosen_stretch(api: FakeApi, opened: AppTest) -> None:
    api.points = api.points[:50]
    opened.query_params["range"] = "2 min"
    api.state["time"] += 300.0
    api.fresh = False
    assert "No window in this stretch of time" in healthy(opened.run())


def test_stale_data_is_said(api: FakeApi, opened: AppTest) -> None:
    api.fresh = False
    api.state["time"] -= 90.0
    assert "data 90 s old" in healthy(opened.run())


def test_texts_of_the_service_are_shown_as_they_are(api: FakeApi, opened: AppTest) -> None:
    api.state["workload"] = "a_b*c* [x](http://y) $1$ :red[z]"
    api.state["last_decision"]["sentence"] = "Hold _x_: <b>no</b> `code` $5 for $6"
    said = healthy(opened.run())
    assert "a_b*c* [x](http://y) $1$ :red[z]" in said
    assert "Hold _x_: <b>no</b> `code` $5 for $6" in said


def test_page_imports_nothing_of_the_package_but_names() -> None:
    for file in Path(PAGE).rglob("*.py"):
        imports = r"^\s*(?:from|import) (specdrift\S*)(.*)$"
        found = re.findall(imports, file.read_text(), re.MULTILINE)
        assert all(
            module == "specdrift" and rest.strip().startswith("import conventions")
            for module, rest in found
        ), (file, found)
