"""The simulated engine: continuous batching with speculation on a virtual clock.

Nothing here looks at a clock, a socket or a file. `advance(t)` runs engine steps up to scenario
time `t`; a step's tokens and counters appear when the step ends, never before.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdrift.conventions import CLASS_OTHER
from specdrift.core.specconfig import SpecConfig, validate
from specdrift.errors import TargetUnreachable
from specdrift.sim.physics import step_model
from specdrift.sim.resolved import ResolvedScenario, Restart
from specdrift.sim.statistics import (
    MAX_CLASSES,
    EngineStatistics,
    RequestNumbers,
    batch_bucket,
)
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

# Rows of the state array: one column per running request.
_REMAINING, _LOG_ACCEPTANCE, _COVERAGE, _DRAFTED, _ACCEPTED = range(5)
_MAX_NAMED_CLASSES = MAX_CLASSES - 1


@dataclass
class _Step:
    """A step in progress: it started with `running` requests, of which `fresh` are prefilled."""

    ends: float
    seconds: float
    running: int
    fresh: int
    k: int
    drafting: NDArray[np.bool_] | None
    prefill_tokens: int


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
        self._capacity = self.max_num_seqs
        self._state = np.zeros((5, self._capacity))
        self._class_index = np.zeros(self._capacity, dtype=np.intp)
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
        self._running: list[SimulatedRequest] = []
        self._listened = 0
        self._running_seconds = 0.0
        self._step: _Step | None = None
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

    def _go_down(self, ready_at: float) -> None:
        for request in [*self._running, *self._waiting]:
            if request.sink is not None:
                request.sink(TokenEvent(0, 0, 0, self.now, "error"))
        self._running, self._step, self._listened = [], None, 0
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
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    @property
    def has_listeners(self) -> bool:
        """Return whether a request from outside is running or waiting."""
        return self._listened > 0 or any(r.sink is not None for r in self._waiting)

    @property
    def kv_cache_tokens(self) -> int:
        """Return the tokens that running requests hold in the KV cache."""
        prompt = sum(r.prompt_tokens + r.output_tokens for r in self._running)
        return prompt - int(self._state[_REMAINING, : len(self._running)].sum())

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
                if not self._running:
                    arrival = self._source.next_arrival(self.now)
                    if arrival >= until:
                        self.now = until
                        return
                    self.now = max(arrival, self.now)
                    continue
                self._step = self._begin_step(fresh)
            if self._step.ends > until:
                self.now = until
                return
            self.now = self._step.ends
            step, self._step = self._step, None
            self._end_step(step)

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
            self._count_end(request, "abort", 0.0, 0.0)
            return
        if request not in self._running:
            return
        # It leaves with the step in progress, without a token.
        slot = self._running.index(request)
        self._state[_REMAINING, slot] = 0.0
        request.finished_reason = "abort"
        self._listened -= request.sink is not None
        request.sink = None

    def _class_number(self, name: str) -> int:
        if name in self.classes:
            return self.classes.index(name)
        if len(self.classes) < _MAX_NAMED_CLASSES:
            self.classes.append(name)
        elif CLASS_OTHER not in self.classes:
            self.classes.append(CLASS_OTHER)
        return self.classes.index(name if name in self.classes else CLASS_OTHER)

    def _take_arrivals(self) -> None:
        for name, at in self._source.take(self.now, len(self._running) + len(self._waiting)):
            self._waiting.append(self._factory.draw(name, self.classes.index(name), at))

    def _admit(self) -> int:
        """Move waiting requests into the batch; returns how many."""
        fresh = 0
        while self._waiting and len(self._running) < self._capacity:
            request = self._waiting.popleft()
            slot = len(self._running)
            self._running.append(request)
            request.admitted = self.now
            request.running_at_admission = len(self._running)
            request.running_seconds_before = self._running_seconds
            probability = min(max(request.acceptance, 0.0), 0.999)
            log = math.log(probability) if probability > 0.0 else -math.inf
            self._state[:, slot] = (request.output_tokens, log, request.coverage, 0.0, 0.0)
            self._class_index[slot] = request.class_index
            fresh += 1
            self._listened += request.sink is not None
            waited = self.now - request.arrival
            self.statistics.admit(request.class_index, waited, request.running_at_admission)
        return fresh

    # --- steps ---------------------------------------------------------------------------------

    def _begin_step(self, fresh: int) -> _Step:
        running = len(self._running)
        decoding = running - fresh
        k = self._model.draft_length(running) if decoding else 0
        drafting: NDArray[np.bool_] | None = None
        drafts = decoding if k else 0
        if k:
            coverage = self._state[_COVERAGE, :decoding]
            if float(coverage.min()) < 1.0:
                drafting = self._random.random(decoding) < coverage
                drafts = int(drafting.sum())
        prefill = sum(r.prompt_tokens - r.cached_tokens for r in self._running[decoding:])
        seconds = self._model.seconds(running, k, drafts * k, prefill)
        noise = self._model.times.noise
        if noise > 0.0:
            seconds *= max(0.2, 1.0 + noise * float(self._random.standard_normal()))
        return _Step(self.now + seconds, seconds, running, fresh, k, drafting, prefill)

    def _end_step(self, step: _Step) -> None:
        running, decoding, k = step.running, step.running - step.fresh, step.k
        state, classes = self._state, self._class_index
        statistics = self.statistics
        bucket = batch_bucket(running)
        tokens = np.ones(running)
        accepted = None
        if k:
            logs = np.log(self._random.random(decoding))
            accepted = np.minimum(np.floor(logs / state[_LOG_ACCEPTANCE, :decoding]), k)
            keys = classes[:decoding] * (k + 1) + accepted.astype(np.intp)
            if step.drafting is not None:
                accepted *= step.drafting
                keys = keys[step.drafting]
                state[_DRAFTED, :decoding] += k * step.drafting
            else:
                state[_DRAFTED, :decoding] += k
            by_accepted = statistics.spec_counts(k, bucket).by_accepted
            by_accepted += np.bincount(keys, minlength=by_accepted.size).reshape(by_accepted.shape)
            state[_ACCEPTED, :decoding] += accepted
            tokens[:decoding] += accepted
        remaining = state[_REMAINING, :running]
        np.minimum(tokens, remaining, out=tokens)
        remaining -= tokens
        by_class = np.bincount(classes[:running], minlength=MAX_CLASSES)
        statistics.step(bucket, k, step.seconds, by_class)
        produced = np.bincount(classes[:running], weights=tokens, minlength=MAX_CLASSES)
        statistics.output_tokens += produced.astype(np.int64)
        statistics.iteration.observe(float(step.prefill_tokens + tokens.sum()))
        if decoding:
            statistics.inter_token.observe(step.seconds, decoding)
        self._running_seconds += running * step.seconds
        for request in self._running[decoding:]:
            request.first_token = self.now
            statistics.prompt_tokens += request.prompt_tokens
            statistics.cached_tokens += request.cached_tokens
            waited = self.now - request.arrival
            statistics.first(request.class_index, waited, request.running_at_admission)
        done = remaining <= 0.0
        if self._listened:
            self._tell(step, tokens, accepted, done)
        if done.any():
            for slot in np.flatnonzero(done):
                request = self._running[slot]
                drafted, taken = state[_DRAFTED, slot], state[_ACCEPTED, slot]
                self._count_end(request, request.finished_reason, float(drafted), float(taken))
            self._compact(~done)

    def _tell(
        self,
        step: _Step,
        tokens: NDArray[np.float64],
        accepted: NDArray[np.float64] | None,
        done: NDArray[np.bool_],
    ) -> None:
        """Hand outside requests their tokens."""
        for slot, request in enumerate(self._running):
            if request.sink is None:
                continue
            drafted = taken = 0
            if accepted is not None and slot < len(accepted):
                drafted = step.k if step.drafting is None or step.drafting[slot] else 0
                taken = int(accepted[slot])
            reason = request.finished_reason if done[slot] else None
            request.sink(TokenEvent(int(tokens[slot]), drafted, taken, self.now, reason))

    def _count_end(
        self, request: SimulatedRequest, reason: str, drafted: float, accepted: float
    ) -> None:
        request.last_token = self.now
        lived = self.now - request.admitted
        load = self._running_seconds - request.running_seconds_before
        mean_running = load / lived if lived > 0 else float(request.running_at_admission)
        numbers = RequestNumbers(
            class_index=request.class_index,
            finished_reason=reason,
            num_speculative_tokens=self.num_speculative_tokens,
            prompt_tokens=request.prompt_tokens,
            cached_tokens=request.cached_tokens,
            output_tokens=request.output_tokens,
            max_tokens=request.max_tokens,
            arrival=request.arrival,
            admitted=request.admitted,
            first_token=request.first_token,
            last_token=request.last_token,
            mean_running=mean_running,
            running_at_admission=request.running_at_admission,
            draft_tokens=drafted,
            accepted_tokens=accepted,
        )
        self.statistics.finish(numbers)

    def _compact(self, keep: NDArray[np.bool_]) -> None:
        """Keep the running requests that `keep` marks, in order."""
        count = len(keep)
        kept = int(keep.sum())
        self._state[:, :kept] = self._state[:, :count][:, keep]
        self._class_index[:kept] = self._class_index[:count][keep]
        self._running = [
            r for r, wanted in zip(self._running, keep.tolist(), strict=True) if wanted
        ]
        self._listened = sum(request.sink is not None for request in self._running)

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
