"""Numbers and states in words. What is not known is said with what would make it known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal

from answers import Alarm, ClassState, State
from specdrift import conventions as names

NOT_KNOWN = "not known yet"
RUNG_AS_FOUND = "as-found"
RUNG_OFF = "off"

Colour = Literal["red", "orange", "blue", "green", "violet", "gray"]

# engine state -> icon, colour, what is so, what it means or what to try
ENGINE: dict[str, tuple[str, Colour, str, str]] = {
    "no_traffic": (
        ":material/pause_circle:",
        "gray",
        "no traffic",
        "No request ran in the last window. Numbers return with the next requests.",
    ),
    "speculation_off": (
        ":material/block:",
        "violet",
        "speculation is off",
        "The engine runs without a draft: there is no acceptance to watch.",
    ),
    "missing": (
        ":material/help:",
        "orange",
        "metrics missing",
        "The engine's page lacks the counters that acceptance is computed from. "
        "Try `specdrift watch` on the engine's URL: it names them.",
    ),
    "first": (
        ":material/hourglass_top:",
        "blue",
        "first scrape",
        "Rates need a second scrape of the engine.",
    ),
    "restarted": (
        ":material/restart_alt:",
        "blue",
        "engine restarted",
        "The engine's counters began anew; the next window counts again.",
    ),
    "down": (
        ":material/error:",
        "red",
        "engine down",
        "The engine did not answer the last scrape. If no restart is under way, "
        "see whether its process runs and its metrics page opens.",
    ),
    "clock_went_back": (
        ":material/schedule:",
        "orange",
        "clock went back",
        "The last scrape carries an earlier time than the one before it; it is left out.",
    ),
    "k_changed": (
        ":material/swap_vert:",
        "blue",
        "draft length changed",
        "num_speculative_tokens changed within the window; it is left out.",
    ),
}

PHASES = {
    "rollout": "changing the configuration",
    "verifying": "verifying the change",
    "standing": "fallback in force",
}

CAUSES = {
    names.CAUSE_MIX_SHIFT: "the mix of classes shifted",
    names.CAUSE_CONTENT_DRIFT: "the content of the class drifted",
    names.CAUSE_WEIGHTS_CHANGED: "target or draft weights changed",
    names.CAUSE_ENGINE_CHANGED: "the engine or its arguments changed",
    names.CAUSE_K_TRANSITION: "the draft length or batch changed",
    names.CAUSE_SAMPLING_CHANGED: "sampling parameters changed",
    names.CAUSE_ENGINE_FAULT: "an engine fault is suspected",
    names.CAUSE_UNKNOWN: "cause unknown",
}

KINDS = {
    "hold": "held",
    "report": "reported",
    "recommend": "recommended",
    "act": "switched",
    "verified": "verified",
    "undo": "undone",
    "probe": "probing",
    "fall_back": "fell back",
    "recovered": "recovered",
}


@dataclass(frozen=True, slots=True)
class Status:
    """A state in words: badge and explanation."""

    icon: str
    colour: Colour
    label: str
    meaning: str


def status(state: State) -> Status:
    """Return what the workload is doing, the most pressing thing first."""
    if state.engine_state == "down" and state.phase in ("rollout", "verifying"):
        what = "The engine is away while its configuration is changed."
        return Status(":material/restart_alt:", "blue", "engine restarting", what)
    if state.engine_state in ENGINE:
        found = Status(*ENGINE[state.engine_state])
        if found.label == "speculation is off" and state.rung == RUNG_OFF:
            return Status(
                found.icon, found.colour, found.label, "specdrift turned it off; see Decisions."
            )
        return found
    alarmed = [c.name for c in state.classes if c.side is not None]
    if alarmed:
        label = f"drift: {', '.join(alarmed)}"
        return Status(":material/warning:", "red", label, "An alarm of acceptance stands.")
    learning = [c for c in state.classes if c.chart_phase == "learning"]
    if learning:
        least = min(learning, key=lambda c: c.progress or 0.0)
        label = "learning the baseline"
        if least.progress is not None:
            label += f": {least.progress:.0%}"
        who = ", ".join(c.name for c in learning)
        what = f"Class {who}: drift can be told once the usual level is known."
        return Status(":material/school:", "blue", label, what)
    if not state.classes:
        return Status(
            ":material/hourglass_top:", "gray", "no class seen yet", "Waiting for drafts."
        )
    return Status(":material/visibility:", "green", "watching", "No alarm stands.")


def doing(state: State) -> str:
    """Return what the loop does besides watching, or nothing."""
    return PHASES.get(state.phase, "")


def rung(name: str) -> str:
    """Return a rung as people read it."""
    return {RUNG_AS_FOUND: "as found", RUNG_OFF: "speculation off", "": NOT_KNOWN}.get(name, name)


def span(seconds: float) -> str:
    """Return a duration a person reads at a glance: 12 s, 3 min, 2.5 h, 30 d."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 86400:.3g} d"


def share(value: float | None, otherwise: str = NOT_KNOWN) -> str:
    """Return an acceptance rate."""
    return otherwise if value is None else f"{value:.2f}"


def milliseconds(seconds: float | None, otherwise: str = NOT_KNOWN) -> str:
    """Return a latency given in seconds; three digits that count."""
    if seconds is None:
        return otherwise
    ms = seconds * 1e3
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms"


def dollars(value: float | None, otherwise: str = NOT_KNOWN) -> str:
    """Return an amount of dollars, the sign before the dollar."""
    if value is None:
        return otherwise
    sign = "-" if value < 0 else ""
    return f"{sign}${abs(value):,.2f}"


def signed(value: float) -> str:
    """Return a change of a ratio with its sign."""
    return f"{value:+.2f}"


def times(value: float | None, otherwise: str = NOT_KNOWN) -> str:
    """Return a speedup over plain decoding."""
    return otherwise if value is None else f"{value:.2f}x"


def clock(zone: tzinfo = UTC) -> Callable[[float | None], str]:
    """Return a function from unix seconds to the time of day in a zone."""

    def of(when: float | None) -> str:
        return "unknown" if when is None else f"{datetime.fromtimestamp(when, zone):%H:%M:%S}"

    return of


def moved(side: str | None) -> str:
    """Return the verb of a side."""
    return "rose" if side == "rise" else "dropped"


def drifted(c: ClassState, at: Callable[[float | None], str]) -> str:
    """Return the standing alarm of a class: level, effect with interval, since when, cause."""
    said = f"**Class {c.name} {moved(c.side)}**"
    if c.baseline is not None and c.effect is not None:
        said += f" from {c.baseline:.2f} to {c.baseline + c.effect:.2f} ({signed(c.effect)}"
        if c.interval is not None:
            said += f", 95% {signed(c.interval[0])} to {signed(c.interval[1])}"
        said += ")"
    if c.change_point is not None:
        said += f" at {at(c.change_point)}"
    if c.changed_with_deployment:
        said += ", with the deployment"
    said += f": {CAUSES.get(c.cause or '', c.cause or 'cause not known yet')}."
    if c.advice:
        said += f" {c.advice[:1].upper()}{c.advice[1:]}."
    return said


def alarm(a: Alarm, at: Callable[[float | None], str]) -> str:
    """Return one alarm as a sentence."""
    if a.recovery:
        return f"Class {a.traffic_class}: acceptance is back at {share(a.after)}."
    said = f"Class {a.traffic_class} acceptance {moved(a.side)}"
    if a.before is not None and a.after is not None:
        said += f" from {a.before:.2f} to {a.after:.2f}"
    if a.effect is not None:
        said += f" ({signed(a.effect)}"
        if a.interval is not None:
            said += f", 95% {signed(a.interval[0])} to {signed(a.interval[1])}"
        said += ")"
    if a.change_point is not None:
        said += f" at {at(a.change_point)}"
    if a.changed_with_deployment:
        said += ", with the deployment"
    return f"{said}; {CAUSES.get(a.cause, a.cause or 'cause unknown')}."


def why_unknown_benefit(state: State) -> str:
    """Return what would make the benefit of speculation known."""
    if state.engine_state == "no_traffic":
        return "no traffic"
    if state.engine_state == "speculation_off":
        return "speculation is off"
    return "needs a time with it off"


def why_no_acceptance(state: State) -> str:
    """Return why there is no acceptance rate now."""
    return {
        "speculation_off": "off",
        "no_traffic": "no traffic",
        "down": "engine down",
        "missing": "metrics missing",
    }.get(state.engine_state, NOT_KNOWN)


def why_no_rate(state: State) -> str:
    """Return why there is no latency, throughput or cost now."""
    return {"down": "engine down", "no_traffic": "no traffic"}.get(state.engine_state, NOT_KNOWN)
