"""Evidence -> cause of a change of acceptance, with the evidence listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdrift import conventions as names


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen around the change point of an alarm.

    Attributes:
        side: "drop" or "rise".
        effect: Change of acceptance of the class (absolute).
        baseline: Level before.
        restarted: The engine process was replaced just before.
        own_action: The replacement was our own action.
        version_changed: /version or the serving arguments (other than speculation) changed.
        speculation_changed: K or the method in force changed.
        classes_seen: Classes with a baseline; `classes_alarmed`: those that changed likewise.
        prompt_length_ratio, output_length_ratio: Mean lengths after over before, None if unknown.
        sampling_changed: The share of sampled (temperature > 0) requests moved, if known.
    """

    side: str
    effect: float
    baseline: float
    restarted: bool = False
    own_action: bool = False
    version_changed: bool = False
    speculation_changed: bool = False
    classes_seen: int = 1
    classes_alarmed: int = 1
    prompt_length_ratio: float | None = None
    output_length_ratio: float | None = None
    sampling_changed: bool | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause of conventions.CAUSES, the evidence for it, and what to do about it."""

    cause: str
    evidence: tuple[str, ...]
    advice: str


COLLAPSE = 0.10

ADVICE = {
    names.CAUSE_MIX_SHIFT: "route the class that does not gain to a pool without speculation",
    names.CAUSE_CONTENT_DRIFT: "retrain the draft on recent traffic of this class",
    names.CAUSE_WEIGHTS_CHANGED: "revert the weights, or ship a draft trained for the new target",
    names.CAUSE_ENGINE_CHANGED: "compare with the previous engine version or arguments",
    names.CAUSE_K_TRANSITION: "keep num_speculative_tokens as it was",
    names.CAUSE_SAMPLING_CHANGED: "compare acceptance at equal temperature",
    names.CAUSE_ENGINE_FAULT: "open an engine bug; restart one replica and compare",
    names.CAUSE_UNKNOWN: "look at what changed at the change point",
}


def diagnose(evidence: Evidence) -> Diagnosis:
    """Name the most likely cause; `unknown` rather than a guess."""
    found: list[str] = []
    if evidence.speculation_changed:
        found.append("the speculative configuration changed at the same time")
        return _diagnosis(names.CAUSE_K_TRANSITION, found)
    if evidence.restarted and evidence.version_changed:
        found.append("the engine restarted with another version or other arguments")
        return _diagnosis(names.CAUSE_ENGINE_CHANGED, found)
    if evidence.restarted and not evidence.own_action:
        found.append("the engine restarted with the same version and arguments")
        found.append(_spread(evidence))
        return _diagnosis(names.CAUSE_WEIGHTS_CHANGED, found)
    if evidence.sampling_changed:
        found.append("the share of sampled requests moved")
        return _diagnosis(names.CAUSE_SAMPLING_CHANGED, found)
    found.append("no restart, same engine, same speculative configuration")
    found.append(_spread(evidence))
    level = evidence.baseline + evidence.effect
    if (
        evidence.side == "drop"
        and evidence.classes_seen > 1
        and evidence.classes_alarmed == evidence.classes_seen
        and level < COLLAPSE * evidence.baseline
    ):
        found.append(f"acceptance collapsed to {level:.2f} in every class at once")
        return _diagnosis(names.CAUSE_ENGINE_FAULT, found)
    return _diagnosis(names.CAUSE_CONTENT_DRIFT, found)


def _spread(evidence: Evidence) -> str:
    if evidence.classes_seen < 2:
        return "one class only: nothing to compare it with"
    if evidence.classes_alarmed == evidence.classes_seen:
        return f"all {evidence.classes_seen} classes changed"
    same = evidence.classes_seen - evidence.classes_alarmed
    return f"{evidence.classes_alarmed} of {evidence.classes_seen} classes changed, {same} did not"


def _diagnosis(cause: str, evidence: Sequence[str]) -> Diagnosis:
    return Diagnosis(cause, tuple(evidence), ADVICE[cause])
