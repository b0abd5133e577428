"""Evidence -> cause."""

from __future__ import annotations

import pytest

from specdrift import conventions as names
from specdrift.core.diagnosis import ADVICE, Evidence, diagnose


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        ({}, names.CAUSE_CONTENT_DRIFT),
        ({"restarted": True}, names.CAUSE_WEIGHTS_CHANGED),
        ({"restarted": True, "version_changed": True}, names.CAUSE_ENGINE_CHANGED),
        ({"restarted": True, "own_action": True}, names.CAUSE_CONTENT_DRIFT),
        ({"version_changed": True}, names.CAUSE_CONTENT_DRIFT),
        ({"speculation_changed": True}, names.CAUSE_K_TRANSITION),
        ({"speculation_changed": True, "restarted": True}, names.CAUSE_K_TRANSITION),
        ({"sampling_changed": True}, names.CAUSE_SAMPLING_CHANGED),
        ({"sampling_changed": False}, names.CAUSE_CONTENT_DRIFT),
        ({"sampling_changed": True, "restarted": True}, names.CAUSE_WEIGHTS_CHANGED),
        ({"classes_seen": 2, "classes_alarmed": 1}, names.CAUSE_CONTENT_DRIFT),
        ({"classes_seen": 2, "classes_alarmed": 2}, names.CAUSE_CONTENT_DRIFT),
        (
            {"classes_seen": 2, "classes_alarmed": 2, "effect": -0.58},
            names.CAUSE_ENGINE_FAULT,
        ),
        # One class alone cannot tell its content from the engine.
        ({"classes_seen": 1, "classes_alarmed": 1, "effect": -0.58}, names.CAUSE_CONTENT_DRIFT),
        ({"classes_seen": 3, "classes_alarmed": 2, "effect": -0.58}, names.CAUSE_CONTENT_DRIFT),
        (
            {"side": "rise", "classes_seen": 2, "classes_alarmed": 2, "effect": -0.58},
            names.CAUSE_CONTENT_DRIFT,
        ),
    ],
)
def test_causes(evidence: dict[str, object], cause: str) -> None:
    values: dict[str, object] = {"side": "drop", "effect": -0.2, "baseline": 0.6, **evidence}
    found = diagnose(Evidence(**values))  # type: ignore[arg-type]
    assert found.cause == cause
    assert found.evidence
    assert found.advice == ADVICE[cause]


def test_the_evidence_says_how_far_it_reaches() -> None:
    def said(seen: int, alarmed: int) -> str:
        return " ".join(
            diagnose(
                Evidence("drop", -0.2, 0.6, classes_seen=seen, classes_alarmed=alarmed)
            ).evidence
        )

    assert "1 of 3 classes changed, 2 did not" in said(3, 1)
    assert "all 3 classes changed" in said(3, 3)
    assert "nothing to compare" in said(1, 1)


def test_every_cause_has_advice() -> None:
    assert set(ADVICE) == set(names.CAUSES)
