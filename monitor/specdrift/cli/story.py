"""A scenario told and judged: what happened when, and whether it is what the scenario calls for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdrift.config import Policy, parse_policy
from specdrift.core.loop import Decision, Kind, LoopState, Phase
from specdrift.core.pipeline import AlarmRecord
from specdrift.core.policy import AS_FOUND
from specdrift.sim.resolved import ResolvedScenario
from specdrift.sim.scenario import Scenario

DEMO_SCRAPE_SECONDS = 0.5
# After the last thing a story waits for, how long it goes on so that mistakes can show.
EPILOGUE_SECONDS = 5.0
# How much longer a story may take to finish an action under way when its time is up.
PATIENCE_SECONDS = 45.0
# How long a change may have been under way before it counts as the reason for an alarm.
REMEMBERED_SECONDS = 60.0

DEMO_SPEC: Mapping[str, Any] = {
    "mode": "act",
    "detector": {
        "falseAlarmInterval": "30d",
        "smallestDrop": 0.05,
        "scrapeInterval": DEMO_SCRAPE_SECONDS,
        "phaseOne": "22s",
    },
    "whenBenefitUnknown": "trial",
    "safety": {
        "cooldown": "3s",
        "actionsPerDay": 20,
        "minGain": 0.05,
        "rolloutTimeout": "40s",
    },
    "recovery": {"probeAfter": "15s", "maxBackoff": "60s"},
    "cost": {"gpu": "H100-SXM", "gpus": 1},
}


def demo_policy(
    scenario: Scenario, *, command: Sequence[str], health_url: str, pages: Sequence[str] = ()
) -> Policy:
    """Return the demo's policy with the scenario's overrides.

    Raises:
        PolicyError: The scenario's `policy` does not fit; names the field.
    """
    spec: dict[str, Any] = {
        **DEMO_SPEC,
        "targetRef": {
            "kind": "LocalProcess",
            "command": list(command),
            "healthUrl": health_url,
        },
        "source": {"direct": {"urls": list(pages) or [health_url]}},
        "classes": sorted(scenario.classes),
    }
    for key, value in scenario.policy.items():
        known = spec.get(key)
        merge = isinstance(known, Mapping) and isinstance(value, Mapping)
        spec[key] = {**known, **value} if merge and known is not None else value
    document = {
        "apiVersion": "specdrift.dev/v1alpha1",
        "kind": "SpecDecodePolicy",
        "metadata": {"name": scenario.engine.model},
        "spec": spec,
    }
    return parse_policy(document, where=f"policy of scenario {scenario.name}")


@dataclass
class Story:
    """What happened so far; times are unix seconds.

    An alarm is false when the class it names did not change shortly before it: the scenario
    knows, the controller does not.
    """

    scenario: Scenario
    resolved: ResolvedScenario
    started: float
    zero: float = 0.0
    alarm: float | None = None
    alarm_class: str | None = None
    cause: str | None = None
    action: float | None = None
    rung: str | None = None
    verified: bool = False
    undone: bool = False
    recovered: bool = False
    false_alarms: int = 0
    actions: int = 0
    reports: int = 0
    quiet_since: float | None = None
    loop: LoopState | None = None
    classes: tuple[str, ...] = field(default_factory=tuple)
    first_tick: float | None = None
    last_tick: float | None = None
    ticks: int = 0

    def begins(self, zero: float) -> None:
        """Say when scenario time was zero."""
        self.zero = zero

    @property
    def onset(self) -> float | None:
        """Return when the first event begins, None where nothing happens."""
        at = self.resolved.onset
        return None if at is None else self.zero + at / self.scenario.time_scale

    def saw(
        self,
        now: float,
        alarms: Sequence[AlarmRecord],
        decision: Decision | None,
        loop: LoopState,
    ) -> None:
        """Take in one tick."""
        self.loop = loop
        self.first_tick = now if self.first_tick is None else self.first_tick
        self.last_tick = now
        self.ticks += 1
        for record in alarms:
            self._alarm(record)
        if decision is not None:
            self._decided(now, decision)
        if decision is not None or alarms or loop.phase in (Phase.ROLLOUT, Phase.VERIFYING):
            self.quiet_since = now

    def _alarm(self, record: AlarmRecord) -> None:
        signal = record.signal
        if not self._true(record.traffic_class, signal.change_point, signal.time):
            self.false_alarms += 1
        if self.alarm is None and not signal.recovery:
            self.alarm = signal.time
            self.alarm_class = record.traffic_class
            self.cause = record.cause

    def _true(self, name: str, change_point: float, time: float) -> bool:
        if name not in self.resolved.classes:
            return False
        scale = self.scenario.time_scale
        changes = [self.zero + c / scale for c in self.resolved.change_times(name)]
        begun = max(change_point, time - REMEMBERED_SECONDS)
        return any(c <= time and (c >= begun - REMEMBERED_SECONDS) for c in changes)

    def _decided(self, now: float, decision: Decision) -> None:
        kind = decision.kind
        if kind is Kind.ACT:
            self.actions += 1
            if self.action is None:
                self.action, self.rung = now, decision.rung
                # The decision looked again, when all classes had had time to follow.
                self.cause = decision.cause or self.cause
        elif kind is Kind.VERIFIED:
            self.verified = True
            self.recovered = False
        elif kind is Kind.UNDO:
            self.undone = True
        elif kind is Kind.RECOVERED:
            self.recovered = True
        elif kind is Kind.REPORT:
            self.reports += 1

    def over(self, now: float) -> bool:
        """Tell whether the story has ended: complete, or out of time with nothing under way."""
        if self.complete(now):
            return True
        end = self.zero + self.scenario.duration_seconds / self.scenario.time_scale
        return now >= end and (self._settled() or now >= end + PATIENCE_SECONDS)

    def complete(self, now: float) -> bool:
        """Tell whether all that the scenario expects happened and has settled."""
        expect = self.scenario.expect
        if not (expect.recovered or expect.undone or expect.verified):
            return False
        if self.quiet_since is None or now - self.quiet_since < EPILOGUE_SECONDS:
            return False
        wanted = (
            (expect.action, self.action is not None),
            (expect.alarm, self.alarm is not None),
            (expect.verified, self.verified),
            (expect.undone, self.undone),
            (expect.recovered, self.recovered),
        )
        if any(asked and not got for asked, got in wanted):
            return False
        # What must not happen needs the whole story: a recovery that is not expected, say.
        return bool(expect.recovered or expect.undone) and self._settled()

    def _settled(self) -> bool:
        return self.loop is not None and self.loop.phase in (Phase.STEADY, Phase.STANDING)

    def shortcomings(self) -> list[str]:
        """Return what differs from what the scenario calls for; empty is a good end."""
        e, found = self.scenario.expect, []
        for name, asked, got in (
            ("action", e.action, self.action is not None),
            ("alarm", e.alarm, self.alarm is not None),
            ("verified", e.verified, self.verified),
            ("undone", e.undone, self.undone),
            ("recovered", e.recovered, self.recovered),
        ):
            if asked is not None and asked != got:
                found.append(f"{name} was {'' if got else 'not '}seen, expected otherwise")
        if e.alarm_class is not None and self.alarm_class != e.alarm_class:
            found.append(f"alarm named class {self.alarm_class}, expected {e.alarm_class}")
        if e.causes and self.alarm is not None and self.cause not in e.causes:
            found.append(f"cause {self.cause}, expected one of {', '.join(e.causes)}")
        if e.rungs and self.action is not None and self.rung not in e.rungs:
            found.append(f"rung {self.rung}, expected one of {', '.join(e.rungs)}")
        if self.false_alarms:
            found.append(f"{self.false_alarms} false alarms")
        if self.loop is not None and not self._settled():
            found.append(f"ended in the middle of {self.loop.phase.value} {self.loop.rung}")
        if self.undone and self.loop is not None and self.loop.rung not in (AS_FOUND, "off"):
            found.append(f"ended with {self.loop.rung} in force after an undo")
        return found

    def _has_begun(self) -> bool:
        return self.onset is not None and (self.last_tick or self.started) >= self.onset

    def tick_seconds(self) -> float | None:
        """Return the mean seconds between ticks; None before the second."""
        if self.first_tick is None or self.last_tick is None or self.ticks < 2:
            return None
        return (self.last_tick - self.first_tick) / (self.ticks - 1)

    def result(self) -> dict[str, Any]:
        """Return the demo's JSON object; times in wall-clock seconds since its start."""

        def since(time: float | None) -> float | None:
            return None if time is None else round(time - self.started, 3)

        return {
            "scenario": self.scenario.name,
            "seed": self.resolved.seed,
            "simulated": True,
            "onset": since(self.onset if self._has_begun() else None),
            "alarm": since(self.alarm),
            "action": since(self.action),
            "alarm_class": self.alarm_class,
            "cause": self.cause,
            "rung": self.rung,
            "verified": self.verified,
            "undone": self.undone,
            "recovered": self.recovered,
            "false_alarms": self.false_alarms,
            "actions": self.actions,
            "as_expected": not self.shortcomings(),
            "shortcomings": self.shortcomings(),
        }
