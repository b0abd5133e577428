"""Requests: the scenario's own arrivals, a calibration load, and requests from outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specdrift.sim.physics import has_full_coverage
from specdrift.sim.resolved import ResolvedScenario
from specdrift.sim.scenario import Lengths, TrafficClass

CALIBRATION_LEVELS = (1, 2, 4, 8, 16, 32, 64, 96)
"""Concurrency levels of a calibration, in order; each gets the same share of its seconds."""

_PREFIX_HIT_SHARE = 0.1
_BLOCK_TOKENS = 16


@dataclass(frozen=True)
class TokenEvent:
    """What one engine step gave one request.

    Args:
        tokens: Output tokens delivered, 0 when the request ended without one.
        drafted: Draft tokens verified in this step.
        accepted: Of them, those accepted.
        at: Scenario time in seconds.
        finished_reason: `stop`, `length`, `abort` or `error` with the last event, else None.
    """

    tokens: int
    drafted: int
    accepted: int
    at: float
    finished_reason: str | None = None


Sink = Callable[[TokenEvent], None]


@dataclass(eq=False, slots=True)
class SimulatedRequest:
    """One request on its way through the engine; also the handle of an outside request.

    Times are scenario seconds; NaN until they happen.
    """

    traffic_class: str
    class_index: int
    arrival: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    max_tokens: int
    finished_reason: str
    acceptance: float
    coverage: float
    sink: Sink | None = None
    admitted: float = math.nan
    first_token: float = math.nan
    last_token: float = math.nan
    running_at_admission: int = 0
    running_seconds_before: float = 0.0


@dataclass(frozen=True)
class RequestSpec:
    """A request from outside.

    Args:
        traffic_class: Its class, e.g. from the header x-traffic-class.
        prompt_tokens: Length of the prompt.
        max_tokens: Limit of the answer; None leaves the length to the class.
        ignore_eos: Whether the answer runs to `max_tokens`.
        sink: Called at each step that gives it tokens, and at its end.
    """

    traffic_class: str
    prompt_tokens: int
    max_tokens: int | None = None
    ignore_eos: bool = False
    sink: Sink | None = None


class RequestFactory:
    """Draws a request's lengths and its own acceptance.

    Args:
        resolved: The scenario with its seed drawn.
        method: The speculative method in force; None when speculation is off.
        seed: Seed sequence of its randomness.
    """

    def __init__(self, resolved: ResolvedScenario, method: str | None, seed: list[int]) -> None:
        self._resolved = resolved
        self._method = method
        self._random = np.random.default_rng(seed)

    def draw(
        self, traffic_class: str, class_index: int, at: float, outside: RequestSpec | None = None
    ) -> SimulatedRequest:
        """Draw a request of a class that arrives at scenario time `at` (seconds)."""
        spec = self._class(traffic_class)
        length = self._length(spec.output_tokens)
        prompt = self._length(spec.prompt_tokens)
        limit = spec.output_tokens.max
        acceptance = self._acceptance(traffic_class, spec, at)
        if outside is not None:
            prompt = outside.prompt_tokens
            room = max(1, self._resolved.engine.max_model_len - prompt)
            limit = room if outside.max_tokens is None else min(outside.max_tokens, room)
            length = limit if outside.ignore_eos else min(length, limit)
        full = self._method is None or has_full_coverage(self._method)
        return SimulatedRequest(
            traffic_class=traffic_class,
            class_index=class_index,
            arrival=at,
            prompt_tokens=prompt,
            cached_tokens=int(prompt * _PREFIX_HIT_SHARE) // _BLOCK_TOKENS * _BLOCK_TOKENS,
            output_tokens=length,
            max_tokens=limit,
            finished_reason="length" if length >= limit else "stop",
            acceptance=acceptance,
            coverage=1.0 if full else spec.coverage,
            sink=None if outside is None else outside.sink,
        )

    def _class(self, name: str) -> TrafficClass:
        classes = self._resolved.classes
        return classes[name] if name in classes else next(iter(classes.values()))

    def _length(self, lengths: Lengths) -> int:
        mu = math.log(lengths.mean) - lengths.sigma**2 / 2
        drawn = math.exp(mu + lengths.sigma * float(self._random.standard_normal()))
        return max(1, min(lengths.max, round(drawn)))

    def _acceptance(self, name: str, spec: TrafficClass, at: float) -> float:
        """Draw from a beta distribution around the class's mean at that time."""
        if self._method is None:
            return 0.0
        mean = self._resolved.truth(name, self._method, at)
        sd = min(spec.between_requests_sd, 0.5 * math.sqrt(max(mean * (1 - mean), 0.0)))
        if sd <= 0.0:
            return mean
        weight = mean * (1 - mean) / sd**2 - 1
        return float(self._random.beta(mean * weight, (1 - mean) * weight))


class Source(Protocol):
    """Where the engine's own requests come from."""

    def next_arrival(self, now: float) -> float:
        """Return the scenario time of the next arrival (infinity if there is none)."""

    def take(self, now: float, in_flight: int) -> list[tuple[str, float]]:
        """Return the requests that arrived up to `now`, as (class, arrival time)."""

    def skip_to(self, now: float) -> None:
        """Forget what arrived before `now`: the engine was not there."""


class NoTraffic:
    """No requests of its own."""

    def next_arrival(self, now: float) -> float:
        """Return infinity."""
        return math.inf

    def take(self, now: float, in_flight: int) -> list[tuple[str, float]]:
        """Return nothing."""
        return []

    def skip_to(self, now: float) -> None:
        """Do nothing."""


class StoryTraffic:
    """Poisson arrivals by class with the scenario's time-varying rates.

    Arrivals depend on the seed only, never on how fast the engine is: two engines with the same
    seed see the same arrivals.
    """

    def __init__(self, resolved: ResolvedScenario, seed: list[int]) -> None:
        self._resolved = resolved
        self._bounds = {name: resolved.highest_arrivals(name) for name in resolved.classes}
        self._random = {
            name: np.random.default_rng([*seed, i]) for i, name in enumerate(resolved.classes)
        }
        self._next = {name: self._after(name, 0.0) for name in resolved.classes}

    def _after(self, name: str, t: float) -> float:
        """Return the next arrival after `t`, by thinning a process of the highest rate."""
        bound = self._bounds[name]
        if bound <= 0.0:
            return math.inf
        random = self._random[name]
        while True:
            t += float(random.exponential(1.0 / bound))
            rate = self._resolved.arrivals(name, t)
            if float(random.random()) * bound < rate:
                return t
            if rate <= 0.0 and t > self._last_event() + 1.0:
                return math.inf

    def _last_event(self) -> float:
        scenario = self._resolved.scenario
        ends = [event.at + getattr(event, "over_seconds", 0.0) for event in scenario.events]
        return max(ends, default=0.0) + self._resolved.shift_seconds

    def next_arrival(self, now: float) -> float:
        """Return the scenario time of the next arrival."""
        return min(self._next.values())

    def take(self, now: float, in_flight: int) -> list[tuple[str, float]]:
        """Return the requests that arrived up to `now`, in order of arrival."""
        taken = []
        for name, at in self._next.items():
            while at <= now:
                taken.append((name, at))
                at = self._after(name, at)
            self._next[name] = at
        taken.sort(key=lambda item: item[1])
        return taken

    def skip_to(self, now: float) -> None:
        """Forget what arrived before `now`."""
        self.take(now, 0)


class CalibrationTraffic:
    """Closed-loop concurrency that climbs through CALIBRATION_LEVELS, then stops.

    Args:
        resolved: Classes are mixed by their arrivals at the start.
        start: Scenario time of the first level, in seconds.
        seconds: Length of the whole calibration.
        most: Highest concurrency (the engine's max_num_seqs).
        seed: Seed sequence of its randomness.
    """

    def __init__(
        self, resolved: ResolvedScenario, start: float, seconds: float, most: int, seed: list[int]
    ) -> None:
        self._start = start
        self._seconds = seconds
        self._levels = [level for level in CALIBRATION_LEVELS if level <= most] or [most]
        self._names = list(resolved.classes)
        rates = np.array([resolved.arrivals(name, 0.0) for name in self._names])
        total = float(rates.sum())
        self._shares = rates / total if total > 0 else np.full(len(rates), 1 / len(rates))
        self._random = np.random.default_rng(seed)

    def level(self, now: float) -> int:
        """Return the concurrency wanted at scenario time `now`."""
        done = (now - self._start) / self._seconds
        if not 0.0 <= done < 1.0:
            return 0
        return self._levels[int(done * len(self._levels))]

    def next_arrival(self, now: float) -> float:
        """Return `now` while the calibration runs: there is always a request waiting."""
        if now < self._start:
            return self._start
        return now if self.level(now) > 0 else math.inf

    def take(self, now: float, in_flight: int) -> list[tuple[str, float]]:
        """Return as many requests as the level lacks."""
        missing = self.level(now) - in_flight
        if missing <= 0:
            return []
        drawn = self._random.choice(len(self._names), size=missing, p=self._shares)
        return [(self._names[i], now) for i in drawn]

    def skip_to(self, now: float) -> None:
        """Do nothing: a closed loop has no backlog."""
