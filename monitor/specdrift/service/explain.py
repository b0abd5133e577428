"""Run a stored decision again from its inputs, and say what was weighed.

The same inputs must give the same decision; where they do not (another version of specdrift
decided), the differences are named field by field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specdrift.core import loop as loops
from specdrift.core.economics import Estimate
from specdrift.core.loop import Decision, LoopState
from specdrift.core.policy import ClassView, Facts, Rules
from specdrift.core.ticks import StoredDecision
from specdrift.service import checkpoint


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, whether it comes out the same again, and the reasons in plain lines."""

    decision: Decision
    identical: bool
    differences: tuple[str, ...]
    lines: tuple[str, ...]


def explain(stored: StoredDecision, *, where: str = "") -> Explanation:
    """Load what was stored, decide again, compare.

    Raises:
        StoreError: The decision or its inputs cannot be read.
    """
    decision = checkpoint.load(Decision, stored.decision, where=where)
    loop, facts, rules = checkpoint.load_inputs(stored.inputs, where=where)
    _, again = loops.advance(loop, facts, rules)
    differences = tuple(_differences(decision, again))
    lines = tuple(_lines(decision, loop, facts, rules))
    return Explanation(decision, not differences, differences, lines)


def _differences(then: Decision, now: Decision | None) -> Iterator[str]:
    if now is None:
        yield "decision: the same inputs lead to no decision now"
        return
    # Compared as stored, so that a tuple is no different from a list.
    one, two = (json.loads(checkpoint.dump(d))["data"] for d in (then, now))
    yield from _compare("", one, two)


def _compare(place: str, one: Any, two: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted(one.keys() | two.keys()):
            yield from _compare(f"{place}.{key}" if place else key, one.get(key), two.get(key))
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for i, pair in enumerate(zip(one, two, strict=True)):
            yield from _compare(f"{place}[{i}]", *pair)
    elif one != two:
        yield f"{place}: stored {json.dumps(one)}, now {json.dumps(two)}"


# --- in words ---------------------------------------------------------------------------------


def _lines(decision: Decision, loop: LoopState, facts: Facts, rules: Rules) -> Iterator[str]:
    yield f"{clock(decision.time)}  {decision.kind.value}: {decision.sentence}"
    yield (
        f"In force: {loop.rung} ({loop.phase.value} since {clock(loop.since)}), "
        f"mode {rules.mode.value}, workload {facts.workload}, engine {facts.rollout.status}"
    )
    yield "Evidence:"
    for view in facts.classes:
        yield f"  class {view.traffic_class}: {_class_line(view)}"
        for item in view.evidence if view.side else ():
            yield f"    {item}"
    if facts.mix:
        yield f"  {facts.mix}"
    yield f"  speed against no speculation: {_interval(facts.benefit)}"
    if facts.point is not None:
        point = facts.point
        yield (
            f"  at {point.running:.1f} running requests: {point.tokens_per_step:.2f} tokens per "
            f"step of {point.step_seconds * 1000:.1f} ms, K={point.num_speculative_tokens}"
        )
    if decision.gain is not None:
        yield f"  measured for this decision: {_interval(decision.gain)}"
    if decision.alternatives:
        yield "Alternatives:"
        for one in decision.alternatives:
            gain = "gain unknown" if one.gain is None else f"expected gain {one.gain:+.1%}"
            verdict = "taken" if one.taken else "not taken"
            yield f"  {one.rung}: {gain}; {verdict}: {one.why}"


def _class_line(view: ClassView) -> str:
    now = "no traffic" if view.acceptance is None else f"acceptance {view.acceptance:.3f}"
    learned = (
        "still learning its baseline" if view.baseline is None else f"baseline {view.baseline:.3f}"
    )
    text = f"{now}, {learned}"
    if view.side is None:
        return f"{text}, no alarm"
    text += f", {view.side}"
    if view.effect is not None:
        text += f" of {view.effect:+.3f}"
    if view.interval is not None:
        text += f" [{view.interval[0]:+.3f}, {view.interval[1]:+.3f}]"
    if view.change_point is not None:
        text += f" since {clock(view.change_point)}"
    changed = " (changed with the deployment)" if view.changed_with_deployment else ""
    return f"{text}, cause {view.cause or 'unknown'}{changed}, " + (
        f"{view.windows_since_alarm} windows since the alarm"
    )


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not known"
    return (
        f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}] "
        f"over {estimate.windows} windows"
    )


def clock(time: float) -> str:
    """Return a unix time as people write it; the number itself where no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return f"{time:g}"
