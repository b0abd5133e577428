"""One sentence per decision: the same text in log, Event, alert, store, CLI and chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdrift.conventions import CLASS_DEFAULT

if TYPE_CHECKING:
    from specdrift.core.benefit import Run
    from specdrift.core.economics import Estimate
    from specdrift.core.estimators import MixChange
    from specdrift.core.pipeline import AlarmRecord
    from specdrift.core.policy import Alternative, Choice, ClassView, Facts


def span(seconds: float) -> str:
    """Return a duration a person reads at a glance: 12 s, 3 min, 2.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def who(traffic_class: str) -> str:
    """Return how a sentence calls a class; where no class is known it is all traffic."""
    return "all traffic" if traffic_class == CLASS_DEFAULT else f"class {traffic_class}"


def ratio(estimate: Estimate) -> str:
    """Return a speedup with its interval."""
    return f"{estimate.value:.2f}x ({estimate.low:.2f} to {estimate.high:.2f})"


def percent(estimate: Estimate) -> str:
    """Return a gain with its interval."""
    return f"{estimate.value:+.0%} ({estimate.low:+.0%} to {estimate.high:+.0%})"


def drift(c: ClassView, now: float) -> str:
    """Return what happened to a class: levels, effect with interval, change point, cause."""
    text = f"{who(c.traffic_class)} acceptance"
    if c.baseline is not None and c.effect is not None:
        text += f" {c.baseline:.2f} → {c.baseline + c.effect:.2f}"
        if c.interval is not None:
            text += f" ({c.effect:+.2f}, 95% {c.interval[0]:+.2f} to {c.interval[1]:+.2f})"
    if c.change_point is not None:
        text += f", began {span(max(0.0, now - c.change_point))} ago"
    if c.cause:
        text += f", cause {c.cause}"
    if c.changed_with_deployment:
        text += ", changed with the deployment"
    return text


def benefit(facts: Facts) -> str:
    """Return what speculation is worth now, or what would make it known."""
    if facts.benefit is not None:
        return f"speculation runs at {ratio(facts.benefit)} of plain decoding at this load"
    return (
        "the benefit of speculation is not known here (no time per step without speculation at "
        "this load: a calibration, a trial or a time with it off would tell)"
    )


def _cause(facts: Facts, drifted: ClassView | None) -> str:
    if drifted is not None:
        return drift(drifted, facts.now)
    if facts.benefit is not None and facts.point is not None:
        return f"no drift, but {facts.point.running:.0f} requests run at once"
    low = [c for c in facts.classes if c.acceptance is not None]
    if low:
        worst = min(low, key=lambda c: c.acceptance or 0.0)
        return f"{who(worst.traffic_class)} acceptance {worst.acceptance:.2f} is below the floor"
    return "no class has traffic"


def act(
    facts: Facts, drifted: ClassView | None, rung: Alternative, refusal: str, *, acts: bool
) -> str:
    """Return the sentence of an action (`acts`, and no refusal) or of a recommendation."""
    verb = "Switch to" if acts and not refusal else "Recommend"
    gain = (
        f"{rung.rung} should gain {rung.gain:+.0%}"
        if rung.gain is not None
        else f"what {rung.rung} gains is not known, so this is a trial"
    )
    text = f"{verb} {rung.rung} for {facts.workload}: {_cause(facts, drifted)}; "
    text += f"{benefit(facts)}; {gain}"
    if rung.gain and rung.gain > 0 and facts.rollout.seconds:
        text += f", which pays its restart of {span(facts.rollout.seconds)} back in "
        text += span(facts.rollout.seconds / rung.gain)
    if refusal and acts:
        text += f". Not done: {refusal}"
    return text + "."


def hold(facts: Facts, drifted: ClassView | None, choice: Choice) -> str:
    """Return the sentence of a decision to leave things as they are."""
    text = f"Hold {facts.workload}: {_cause(facts, drifted)}; {benefit(facts)}"
    text += _reasons(choice)
    if drifted is not None and drifted.advice:
        text += f". Advice: {drifted.advice}"
    return text + "."


def _reasons(choice: Choice) -> str:
    reasons = [f"{a.rung}: {a.why}" for a in choice.alternatives if a.why]
    return f" ({'; '.join(reasons)})" if reasons else ""


def floor(facts: Facts, level: float, choice: Choice) -> str:
    """Return the sentence of a class below the floor while nothing about the gain is known."""
    low = [
        f"{who(c.traffic_class)} {c.acceptance:.2f}"
        for c in facts.classes
        if c.acceptance is not None and c.acceptance < level
    ]
    return (
        f"Recommend a trial without speculation for {facts.workload}: acceptance below the floor "
        f"of {level:.2f} ({', '.join(low)}); {benefit(facts)}{_reasons(choice)}."
    )


def paused(facts: Facts, rung: str, mode: str) -> str:
    """Return the sentence of a verification that waits because acting was taken away."""
    return (
        f"Hold {facts.workload} with {rung} in force: it was not verified yet, and mode {mode} "
        "changes nothing; judged afresh when mode is act again."
    )


def verified(facts: Facts, rung: str, gain: Estimate) -> str:
    """Return the sentence of a proven action."""
    return (
        f"Verified {rung} for {facts.workload}: {percent(gain)} speed at equal load over "
        f"{gain.windows} windows before and after."
    )


def undo(facts: Facts, rung: str, back_to: str, gain: Estimate | None) -> str:
    """Return the sentence of an action undone because it did not help."""
    why = f"{percent(gain)} speed at equal load" if gain is not None else "not comparable"
    return f"Undo {rung} for {facts.workload}, back to {back_to}: {why}; it did not help."


def undo_rollout(facts: Facts, rung: str, back_to: str, reason: str) -> str:
    """Return the sentence of a rollout that failed and is undone."""
    return f"Undo {rung} for {facts.workload}, back to {back_to}: the rollout failed ({reason})."


def stuck(facts: Facts, rung: str, reason: str) -> str:
    """Return the sentence for a way back that fails as well: a person is needed."""
    return f"Stuck on the way back to {rung} for {facts.workload}: {reason}. A person is needed."


def probe(facts: Facts, rung: str, stood: float, refusal: str) -> str:
    """Return the sentence of a half-open probe."""
    text = f"Probe the original config of {facts.workload} after {span(stood)} of {rung}"
    return text + (f". Not done: {refusal}." if refusal else ".")


def recovered(facts: Facts, measured: Estimate) -> str:
    """Return the sentence of a probe that held."""
    return (
        f"Restored the original config of {facts.workload}: speculation runs at "
        f"{ratio(measured)} of plain decoding again."
    )


def probe_failed(facts: Facts, rung: str, measured: Estimate | None, wait: float) -> str:
    """Return the sentence of a probe that did not hold."""
    what = f"speculation runs at {ratio(measured)}" if measured else "no traffic to judge by"
    return f"Back to {rung} for {facts.workload}: {what}; next probe in {span(wait)}."


def mix(change: MixChange) -> str:
    """Return the sentence of a change of mix."""
    moved = ", ".join(
        f"{name} {s0:.0%} → {s1:.0%}" for name, s0, s1 in change.shares if abs(s1 - s0) >= 0.02
    )
    text = (
        f"The mix of traffic changed ({moved} of draft tokens): blended acceptance "
        f"{change.before:.2f} → {change.after:.2f}"
    )
    if change.within is not None and change.mix is not None:
        return text + f", of it {change.mix:+.2f} by mix and {change.within:+.2f} within classes."
    names = ", ".join(change.unknown)
    return text + f"; within-class change not estimable ({names} has no baseline yet)."


def alarm(record: AlarmRecord) -> str:
    """Return the sentence of an alarm, or of the return from one."""
    s = record.signal
    ago = span(max(0.0, s.time - s.change_point))
    text = f"{who(record.traffic_class)} acceptance {s.level_before:.2f} → {s.level_after:.2f}"
    text += f" ({s.effect:+.2f}, 95% {s.interval[0]:+.2f} to {s.interval[1]:+.2f})"
    if s.recovery:
        return f"Back at the baseline: {text}, began {ago} ago."
    what = "Acceptance drop" if s.side == "drop" else "Acceptance rise"
    text = f"{what}: {text}, began {ago} ago, cause {record.cause}"
    if s.changed_with_deployment:
        text += ", changed with the deployment"
    return f"{text} ({'; '.join(record.evidence)})."


def benefit_run(run: Run, zero: float) -> str:
    """Return what speculation was worth over a stretch of a recording that began at `zero`."""
    text = f"{run.verdict} to {run.end - zero:.1f} s: "
    if run.speedup is not None:
        text += f"{ratio(run.speedup)} of plain decoding"
    else:
        text += "not known (too few windows at a load that the reference has)"
    if run.acceptance is not None:
        text += f", acceptance {run.acceptance:.2f}"
    if run.running is not None:
        text += f", {run.running:.0f} running"
    if run.others:
        text += f" ({run.slices - run.others} of {run.slices} slices by themselves)"
    return text
