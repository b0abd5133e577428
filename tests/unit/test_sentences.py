"""One sentence per decision: complete, short, the same everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdrift.core import sentences
from specdrift.core.detector import Side, Signal
from specdrift.core.economics import Estimate
from specdrift.core.estimators import Share, decompose
from specdrift.core.pipeline import AlarmRecord
from specdrift.core.policy import Alternative, Choice
from tests.support.facts import drop, facts, losing

GAIN = Estimate(0.38, 0.31, 0.45, 24)
OFF = Alternative("off", None, 1.0, 0.38, True, "expected gain +38%")
TRIAL = Alternative("ngram", {"method": "ngram"}, None, None, True, "a trial")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (12.0, "12 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (3600.0, "60 min"),
        (7200.0, "2.0 h"),
        (9000.0, "2.5 h"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert sentences.span(seconds) == text


def test_all_of_them_are_one_line_and_end() -> None:
    found = losing(1000.0, classes=(drop(since=970.0),))
    everything = [
        sentences.act(found, found.classes[0], OFF, "", acts=True),
        sentences.act(found, None, OFF, "the cool-down lasts another 12 s", acts=True),
        sentences.act(facts(1000.0, known=False), None, TRIAL, "", acts=True),
        sentences.hold(found, found.classes[0], Choice(None, (OFF,))),
        sentences.hold(replace(found, classes=(), point=None), None, Choice(None, ())),
        sentences.verified(found, "off", GAIN),
        sentences.undo(found, "off", "as-found", GAIN),
        sentences.undo(found, "off", "as-found", None),
        sentences.undo_rollout(found, "off", "as-found", "exit 1"),
        sentences.stuck(found, "as-found", "exit 1"),
        sentences.probe(found, "off", 1800.0, ""),
        sentences.probe(found, "off", 1800.0, "no"),
        sentences.recovered(found, Estimate(1.2, 1.1, 1.3, 12)),
        sentences.probe_failed(found, "off", Estimate(0.8, 0.7, 0.9, 12), 3600.0),
        sentences.probe_failed(found, "off", None, 3600.0),
    ]
    for text in everything:
        assert "\n" not in text
        assert text.endswith(".")
        assert text[0].isupper()
        assert "None" not in text
        assert "nan" not in text
        assert "  " not in text
        assert "llama" in text


def test_an_action_names_class_change_point_size_cause_and_gain() -> None:
    found = losing(1000.0, classes=(drop(since=970.0),))
    text = sentences.act(found, found.classes[0], OFF, "", acts=True)
    for part in (
        "off",
        "class code",
        "0.60 → 0.30",
        "-0.30, 95% -0.33 to -0.27",
        "began 35 s ago",
        "content_drift",
        "of plain decoding at this load",
        "+38%",
        "restart of 10 s back in 26 s",
    ):
        assert part in text, part


def test_a_refusal_is_a_recommendation_with_its_reason() -> None:
    found = losing(1000.0)
    text = sentences.act(found, None, OFF, "outside the maintenance windows", acts=True)
    assert text.startswith("Recommend off")
    assert "Not done: outside the maintenance windows" in text


def test_without_the_right_to_act_it_is_a_recommendation() -> None:
    found = losing(1000.0)
    text = sentences.act(found, None, OFF, "", acts=False)
    assert text.startswith("Recommend off")
    assert "Switch to" not in text


def test_a_trial_says_that_it_is_one() -> None:
    text = sentences.act(facts(1000.0, known=False), None, TRIAL, "", acts=True)
    assert "not known, so this is a trial" in text
    assert "a calibration, a trial" in text


def test_no_class_is_all_traffic() -> None:
    assert sentences.who("default") == "all traffic"
    assert sentences.who("chat") == "class chat"


def signal(**changes: object) -> Signal:
    made = Signal(Side.DROP, 100.0, 88.0, 0.6, 0.4, -0.2, (-0.24, -0.16))
    return replace(made, **changes)  # type: ignore[arg-type]


def said(made: Signal, name: str = "code") -> str:
    return sentences.alarm(
        AlarmRecord(name, "eagle3:3", made, "content_drift", ("no restart", "1 of 2"), "retrain")
    )


def test_alarms() -> None:
    text = said(signal())
    assert text == (
        "Acceptance drop: class code acceptance 0.60 → 0.40 (-0.20, 95% -0.24 to -0.16), "
        "began 12 s ago, cause content_drift (no restart; 1 of 2)."
    )
    assert said(signal(side=Side.RISE)).startswith("Acceptance rise: ")
    assert "changed with the deployment" in said(signal(changed_with_deployment=True))
    assert said(signal(recovery=True, side=Side.RISE)).startswith("Back at the baseline: ")
    assert "all traffic" in said(signal(), "default")


def test_a_change_of_mix_splits_what_it_can() -> None:
    before = [Share("chat", 500, 350), Share("code", 500, 200)]
    after = [Share("chat", 200, 140), Share("code", 800, 320)]
    change = decompose(before, after)
    assert change is not None
    text = sentences.mix(change)
    for part in (
        "chat 50% → 20%",
        "code 50% → 80%",
        "0.55 → 0.46",
        "-0.09 by mix",
        "+0.00 within",
    ):
        assert part in text, part


def test_a_class_without_a_baseline_is_not_estimable() -> None:
    change = decompose([Share("code", 100, 59)], [Share("code", 80, 47), Share("chat", 20, 5)])
    assert change is not None
    text = sentences.mix(change)
    assert "within-class change not estimable (chat has no baseline yet)" in text
    assert text.startswith("The mix of traffic changed (chat 0% → 20%, code 100% → 80%")
