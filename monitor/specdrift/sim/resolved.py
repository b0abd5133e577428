"""A scenario with its seed drawn: the exact truth that a simulated engine follows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specdrift.sim.physics import lookup
from specdrift.sim.scenario import (
    EVERY_CLASS,
    AcceptanceEvent,
    ArrivalsEvent,
    EngineSpec,
    LoadEvent,
    RestartEvent,
    Scenario,
    TrafficClass,
)

_HIGHEST_ACCEPTANCE = 0.98
_SEED_STREAM = 7919


class Track:
    """A value over scenario time: constant, with linear ramps."""

    def __init__(self, start: float) -> None:
        self._times: list[float] = [0.0]
        self._values: list[float] = [start]

    def ramp(self, at: float, to: float, over: float) -> None:
        """Move to `to` between `at` and `at + over` seconds; events must come in order."""
        before = self.at(at)
        while self._times and self._times[-1] > at:
            self._times.pop()
            self._values.pop()
        self._times += [at, at + over]
        self._values += [before, to]

    def at(self, t: float) -> float:
        """Return the value at scenario time `t`, in seconds."""
        times, values = self._times, self._values
        i = bisect_right(times, t)
        if i == 0:
            return values[0]
        if i == len(times):
            return values[-1]
        t0, t1 = times[i - 1], times[i]
        return values[i - 1] + (values[i] - values[i - 1]) * (t - t0) / (t1 - t0)

    @property
    def highest(self) -> float:
        """Return the largest value the track ever takes."""
        return max(self._values)


@dataclass(frozen=True)
class Restart:
    """A restart the story contains.

    Args:
        at: Scenario time in seconds.
        down_seconds: Until it serves again.
        version: The engine version after it.
        changed: Whether acceptance or version differ afterwards.
    """

    at: float
    down_seconds: float
    version: str
    changed: bool


class ResolvedScenario:
    """A scenario after its seed has drawn onset, size and load; deterministic in the seed.

    Args:
        scenario: The file.
        seed: Draws what `vary` allows; also the default seed of the engine's own randomness.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        draw = np.random.default_rng([seed, _SEED_STREAM])
        vary = scenario.vary
        self.shift_seconds = float(draw.uniform(*vary.onset_seconds))
        self.size = float(draw.uniform(*vary.size))
        self.load = float(draw.uniform(*vary.load))
        self._acceptance: dict[tuple[str, str], Track] = {
            (name, method): Track(value)
            for name, spec in scenario.classes.items()
            for method, value in spec.acceptance.items()
        }
        self._changes: dict[str, list[float]] = {name: [] for name in scenario.classes}
        self._arrivals = {
            name: Track(spec.arrivals_per_second) for name, spec in scenario.classes.items()
        }
        self._factors = {name: Track(1.0) for name in scenario.classes}
        self._restarts: list[Restart] = []
        events = sorted(scenario.events, key=lambda event: event.at)
        for event in events:
            at = event.at + self.shift_seconds
            if isinstance(event, AcceptanceEvent):
                self._move(event.traffic_class, event.to, at, event.over_seconds)
            elif isinstance(event, LoadEvent):
                everything = event.traffic_class == EVERY_CLASS
                for name in self.classes if everything else [event.traffic_class]:
                    self._factors[name].ramp(at, event.factor, event.over_seconds)
            elif isinstance(event, ArrivalsEvent):
                track = self._arrivals[event.traffic_class]
                track.ramp(at, event.arrivals_per_second, event.over_seconds)
            else:
                self._add_restart(event, at)
        self.event_times: tuple[float, ...] = tuple(e.at + self.shift_seconds for e in events)

    def _move(self, name: str, to: Mapping[str, float], at: float, over: float) -> None:
        spec = self.classes[name]
        for method, value in to.items():
            start = lookup(spec.acceptance, method, default=value)
            target = start + (value - start) * self.size
            track = self._acceptance.setdefault((name, method), Track(start))
            track.ramp(at, min(max(target, 0.0), _HIGHEST_ACCEPTANCE), over)
        self._changes[name].append(at)

    def _add_restart(self, event: RestartEvent, at: float) -> None:
        for name, to in event.acceptance.items():
            self._move(name, to, at, 0.0)
        down = event.down_seconds
        self._restarts.append(
            Restart(
                at=at,
                down_seconds=self.engine.startup_seconds if down is None else down,
                version=event.version or self.version_at(at),
                changed=bool(event.acceptance) or event.version is not None,
            )
        )

    @property
    def name(self) -> str:
        """Return the scenario's name."""
        return self.scenario.name

    @property
    def engine(self) -> EngineSpec:
        """Return the simulated engine's description."""
        return self.scenario.engine

    @property
    def classes(self) -> Mapping[str, TrafficClass]:
        """Return the traffic classes as they are at the start."""
        return self.scenario.classes

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Return the restarts of the story, in order."""
        return tuple(self._restarts)

    @property
    def onset(self) -> float | None:
        """Return the scenario time of the first event, in seconds; None if nothing happens."""
        return self.event_times[0] if self.event_times else None

    def change_times(self, traffic_class: str) -> tuple[float, ...]:
        """Return when the acceptance of a class starts to change, in scenario seconds."""
        return tuple(self._changes.get(traffic_class, ()))

    def truth(self, traffic_class: str, method: str, t: float) -> float:
        """Return the probability that a draft token is accepted, given those before it were.

        It holds for requests that arrive at scenario time `t`; a class that the scenario does not
        name behaves like the mean of those it does. Related methods stand in for one another:
        `eagle` for `eagle3`, `ngram_gpu` and `suffix` for `ngram`.
        """
        if traffic_class not in self.classes:
            values = [self.truth(name, method, t) for name in self.classes]
            return sum(values) / len(values)
        tracks = {
            m: track for (name, m), track in self._acceptance.items() if name == traffic_class
        }
        track = lookup(tracks, method, default=None)
        return 0.0 if track is None else track.at(t)

    def arrivals(self, traffic_class: str, t: float) -> float:
        """Return the arrivals per scenario second of a class at scenario time `t`."""
        if traffic_class not in self.classes:
            return 0.0
        rate = self._arrivals[traffic_class].at(t) * self._factors[traffic_class].at(t)
        return rate * self.load

    def highest_arrivals(self, traffic_class: str) -> float:
        """Return a bound on the arrivals per second of a class over the whole story."""
        bound = self._arrivals[traffic_class].highest * self._factors[traffic_class].highest
        return bound * self.load

    def version_at(self, t: float) -> str:
        """Return the engine version in force at scenario time `t`."""
        version = self.engine.version
        for restart in self._restarts:
            if restart.at <= t:
                version = restart.version
        return version
