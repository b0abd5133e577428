"""The simulated engine: continuous batching with speculation on a virtual clock.

Nothing here looks at a clock, a socket or a file. `advance(t)` runs engine steps up to scenario
time `t`; a step's tokens and counters appear when the step ends, never before.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from specdrift.conventions import CLASS_OTHER
from specdrift.core.specconfig import SpecConfig, validate
from specdrift.errors import TargetUnreachable
from specdrift.sim.batch import Batch, Step
from specdrift.sim.physics import step_model
from specdrift.sim.resolved import ResolvedScenario, Restart
from specdrift.sim.statistics import MAX_CLASSES, EngineStatistics, RequestNumbers
from specdrift.sim.traffic import (
    CalibrationTraffic,
    NoTraffic,
    RequestFactory,
    RequestSpec,
    SimulatedRequest,
    Source,
    StoryTraffic,
    TokenEvent,
)

_MAX_NAMED_CLASSES = MAX_CLASSES - 1


class SimulatedEngine:
    """One simulated engine that lives through a scenario, restarts included.

    Args:
        resolved: The scenario with its seed drawn.
        config: The speculative config in force; None (or an empty one) is off.
        seed: Seed of the engine's own randomness; None takes the scenario's.
        start_at: Scenario time at which it begins to serve, in seconds.
        epoch: Unix time at which scenario time is zero (for `_created` and process start only).
        tap: Whether the `specdrift_tap_*` series are published.
        traffic: Whether the scenario's own requests arrive.
        calibrate_seconds: Run a calibration load of that many scenario seconds instead.
        max_num_seqs: Overrides the scenario's.
        model_name: Overrides the scenario's.

    Raises:
        SpecConfigError: The stated engine version would not start with this config.
    """

    def __init__(
        self,
        resolved: ResolvedScenario,
        config: SpecConfig | None,
        *,
        seed: int | None = None,
        start_at: float = 0.0,
        epoch: float = 0.0,
        tap: bool = True,
        traffic: bool = True,
        calibrate_seconds: float | None = None,
        max_num_seqs: int | None = None,
        model_name: str | None = None,
    ) -> None:
        self.resolved = resolved
        self.epoch = epoch
        self.tap = tap
        self.model_name = model_name or resolved.engine.model
        self.max_num_seqs = max_num_seqs or resolved.engine.max_num_seqs
        self._seed = [resolved.seed if seed is None else seed, max(0, round(start_at * 1000))]
        self._random = np.random.default_rng([*self._seed, 1])
        self.classes: list[str] = list(resolved.classes)
        self.now = start_at
        self.up = True
        self.ready_at = start_at
        self._source: Source = NoTraffic()
        if calibrate_seconds is not None:
            self._source = CalibrationTraffic(
                resolved, start_at, calibrate_seconds, self.max_num_seqs, [*self._seed, 2]
            )
        elif traffic:
            self._source = StoryTraffic(resolved, [self._seed[0], 3])
        self._restarts = [r for r in resolved.restarts if r.at > start_at]
        if calibrate_seconds is not None:
            self._restarts = []
        self._lives = 0
        self._begin_life(config, start_at)

    # --- life ----------------------------------------------------------------------------------

    def _begin_life(self, config: SpecConfig | None, at: float) -> None:
        self.config = None if config is None or config.off else config
        self.version = self.resolved.version_at(at)
        if self.config is not None:
            validate(self.config, self.version)
        self.up = True
        self.ready_at = self.now = at
        self.started_at = at
        self.statistics = EngineStatistics(self.resolved.engine.max_model_len)
        self._model = step_model(self.resolved.engine.step_time, self.config)
        method = None if self.config is None else self.config.method
        self._factory = RequestFactory(self.resolved, method, [*self._seed, 4, self._lives])
        self._lives += 1
        self._waiting: deque[SimulatedRequest] = deque()
        self._batch = Batch(self.max_num_seqs, self._random)
        self._step: Step | None = None
        self._source.skip_to(at)

    def restart(self, config: SpecConfig | None, *, down_seconds: float | None = None) -> None:
        """Restart with another config: scenario time goes on, counters start at zero.

        Args:
            config: The config of the next life; None is off.
            down_seconds: Until it serves again; None takes the scenario's start-up time.

        Raises:
            SpecConfigError: The engine would not start with it; the running life goes on.
        """
        if config is not None:
            validate(config, self.resolved.version_at(self.now))
        down = self.resolved.engine.startup_seconds if down_seconds is None else down_seconds
        self._go_down(self.now + down)
        self.config = None if config is None or config.off else config

    def shut_down(self) -> None:
        """Stop for good: requests from outside end with an error."""
        self._go_down(math.inf)

    def _go_down(self, ready_at: float) -> None:
        for request in [*self._batch.requests, *self._waiting]:
            if request.sink is not None:
                request.sink(TokenEvent(0, 0, 0, self.now, "error"))
        self._batch, self._step = Batch(self.max_num_seqs, self._random), None
        self._waiting.clear()
        self.up = False
        self.ready_at = ready_at

    @property
    def num_speculative_tokens(self) -> int:
        """Return the configured K; 0 is off."""
        return self._model.max_k

    @property
    def running(self) -> int:
        """Return the number of running requests."""
        return len(self._batch.requests)

    @property
    def waiting(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    @property
    def has_listeners(self) -> bool:
        """Return whether a request from outside is running or waiting."""
        return self._batch.listeners > 0 or any(r.sink is not None for r in self._waiting)

    @property
    def kv_cache_tokens(self) -> int:
        """Return the tokens that running requests hold in the KV cache."""
        return self._batch.tokens_held

    # --- time ----------------------------------------------------------------------------------

    def advance(self, until: float) -> None:
        """Run the engine up to scenario time `until` (seconds); going back does nothing."""
        while self.now < until:
            if not self.up:
                if self.ready_at > until:
                    self.now = until
                    return
                self._begin_life(self.config, self.ready_at)
                continue
            due: Restart | None = self._restarts[0] if self._restarts else None
            if due is not None and due.at <= self.now:
                self._restarts.pop(0)
                self._go_down(due.at + due.down_seconds)
                continue
            self._run(until if due is None else min(until, due.at))

    def _run(self, until: float) -> None:
        while True:
            if self._step is None:
                self._take_arrivals()
                fresh = self._admit()
                if not self._batch.requests:
                    arrival = self._source.next_arrival(self.now)
                    if arrival >= until:
                        self.now = until
                        return
                    self.now = max(arrival, self.now)
                    continue
                self._step = self._batch.begin(self._model, fresh, self.now)
            if self._step.ends > until:
                self.now = until
                return
            self.now = self._step.ends
            step, self._step = self._step, None
            self._batch.end(step, self.statistics, self.num_speculative_tokens)

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: RequestSpec) -> SimulatedRequest:
        """Queue a request from outside; returns the handle for `abort`.

        Unknown classes are taken up to a cap, then counted as `other`.

        Raises:
            TargetUnreachable: The engine is down.
        """
        self._require_up()
        index = self._class_number(request.traffic_class)
        made = self._factory.draw(self.classes[index], index, self.now, request)
        self._waiting.append(made)
        return made

    def abort(self, request: SimulatedRequest) -> None:
        """Take a request out; counts as aborted. A request that has ended is left alone."""
        if request in self._waiting:
            self._waiting.remove(request)
            request.finished_reason = "abort"
            self.statistics.finish(request, RequestNumbers(self.num_speculative_tokens))
        elif request in self._batch.requests:
            self._batch.abort(request)

    def _class_number(self, name: str) -> int:
        if name in self.classes:
            return self.classes.index(name)
        if len(self.classes) < _MAX_NAMED_CLASSES:
            self.classes.append(name)
        elif CLASS_OTHER not in self.classes:
            self.classes.append(CLASS_OTHER)
        return self.classes.index(name if name in self.classes else CLASS_OTHER)

    def _take_arrivals(self) -> None:
        for name, at in self._source.take(self.now, self.running + self.waiting):
            self._waiting.append(self._factory.draw(name, self.classes.index(name), at))

    def _admit(self) -> int:
        """Move waiting requests into the batch; returns how many."""
        fresh = 0
        while self._waiting and not self._batch.full:
            request = self._waiting.popleft()
            self._batch.admit(request, self.now)
            self.statistics.admit(request)
            fresh += 1
        return fresh

    # --- reading -------------------------------------------------------------------------------

    def _require_up(self) -> None:
        if not self.up:
            raise TargetUnreachable("the simulated engine is not serving", why="it is restarting")

    def wall(self, t: float) -> float:
        """Return the Unix time of scenario time `t`."""
        return self.epoch + t / self.resolved.scenario.time_scale

    def exposition(self) -> str:
        """Return the engine's /metrics page as of now.

        Raises:
            TargetUnreachable: The engine is down: a real one would refuse the connection.
        """
        from specdrift.sim.exposition import render

        self._require_up()
        return render(self)
