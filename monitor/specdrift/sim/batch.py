"""The running batch of a simulated engine: one step at a time, all requests at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdrift.sim.physics import StepModel
from specdrift.sim.statistics import (
    MAX_CLASSES,
    EngineStatistics,
    RequestNumbers,
    batch_bucket,
)
from specdrift.sim.traffic import SimulatedRequest, TokenEvent

# Rows of the state array: one column per running request.
_REMAINING, _LOG_ACCEPTANCE, _COVERAGE, _DRAFTED, _ACCEPTED = range(5)
_HIGHEST_PROBABILITY = 0.999
_LEAST_NOISE_FACTOR = 0.2


@dataclass
class Step:
    """A step in progress.

    Args:
        ends: Scenario time at which it ends, in seconds.
        seconds: Its length.
        running: Requests in the batch; the last `fresh` of them are prefilled in this step.
        k: Draft positions in force, 0 without speculation.
        drafting: Which decoding requests have a draft; None: all.
        prefill_tokens: Prompt tokens processed.
    """

    ends: float
    seconds: float
    running: int
    fresh: int
    k: int
    drafting: NDArray[np.bool_] | None
    prefill_tokens: int


class Batch:
    """The running requests.

    Args:
        capacity: Most running requests.
        random: Draws coverage, acceptance and the noise of step times.
    """

    def __init__(self, capacity: int, random: np.random.Generator) -> None:
        self.capacity = capacity
        self.requests: list[SimulatedRequest] = []
        self.listeners = 0
        self._random = random
        self._state = np.zeros((5, capacity))
        self._class_index = np.zeros(capacity, dtype=np.intp)
        self._running_seconds = 0.0

    @property
    def full(self) -> bool:
        """Return whether no further request fits."""
        return len(self.requests) >= self.capacity

    @property
    def tokens_held(self) -> int:
        """Return prompt and output tokens that the running requests hold in the KV cache."""
        held = sum(r.prompt_tokens + r.output_tokens for r in self.requests)
        return held - int(self._state[_REMAINING, : len(self.requests)].sum())

    def admit(self, request: SimulatedRequest, now: float) -> None:
        """Take a waiting request in at scenario time `now`; it is prefilled in the next step."""
        slot = len(self.requests)
        self.requests.append(request)
        request.admitted = now
        request.running_at_admission = len(self.requests)
        request.running_seconds_before = self._running_seconds
        probability = min(max(request.acceptance, 0.0), _HIGHEST_PROBABILITY)
        log = math.log(probability) if probability > 0.0 else -math.inf
        self._state[:, slot] = (request.output_tokens, log, request.coverage, 0.0, 0.0)
        self._class_index[slot] = request.class_index
        self.listeners += request.sink is not None

    def abort(self, request: SimulatedRequest) -> None:
        """Let a running request leave with the step in progress, without a token."""
        self._state[_REMAINING, self.requests.index(request)] = 0.0
        request.finished_reason = "abort"
        self.listeners -= request.sink is not None
        request.sink = None

    def begin(self, model: StepModel, fresh: int, now: float) -> Step:
        """Begin a step at scenario time `now`; the last `fresh` requests are new.

        New requests have nothing to verify yet, but the draft already runs for them.
        """
        running = len(self.requests)
        decoding = running - fresh
        k = model.draft_length(running)
        drafting: NDArray[np.bool_] | None = None
        drafts = decoding if k else 0
        if k and decoding:
            coverage = self._state[_COVERAGE, :decoding]
            if float(coverage.min()) < 1.0:
                drafting = self._random.random(decoding) < coverage
                drafts = int(drafting.sum())
        prefill = sum(r.prompt_tokens - r.cached_tokens for r in self.requests[decoding:])
        seconds = model.seconds(running, k, drafts * k, prefill)
        noise = model.times.noise
        if noise > 0.0:
            factor = 1.0 + noise * float(self._random.standard_normal())
            seconds *= max(_LEAST_NOISE_FACTOR, factor)
        return Step(now + seconds, seconds, running, fresh, k, drafting, prefill)

    def end(self, step: Step, statistics: EngineStatistics, configured_k: int) -> None:
        """End a step: accept, deliver, count; requests that are done leave."""
        running, decoding, now = step.running, step.running - step.fresh, step.ends
        classes = self._class_index
        tokens = np.ones(running)
        accepted = None
        if step.k and decoding:
            accepted = self._accept(step, decoding, statistics)
            tokens[:decoding] += accepted
        remaining = self._state[_REMAINING, :running]
        np.minimum(tokens, remaining, out=tokens)
        remaining -= tokens
        by_class = np.bincount(classes[:running], minlength=MAX_CLASSES)
        statistics.step(batch_bucket(running), step.k, step.seconds, by_class)
        produced = np.bincount(classes[:running], weights=tokens, minlength=MAX_CLASSES)
        statistics.output_tokens += produced.astype(np.int64)
        statistics.iteration.observe(float(step.prefill_tokens + tokens.sum()))
        if decoding:
            statistics.inter_token.observe(step.seconds, decoding)
        self._running_seconds += running * step.seconds
        for request in self.requests[decoding:]:
            request.first_token = now
            statistics.first(request)
        done = remaining <= 0.0
        for slot in np.flatnonzero(done).tolist():
            self._finish(slot, now, statistics, configured_k)
        if self.listeners:
            self._tell(step, tokens, accepted, done)
        if done.any():
            self._keep(~done)

    def _accept(
        self, step: Step, decoding: int, statistics: EngineStatistics
    ) -> NDArray[np.float64]:
        """Draw the accepted draft tokens of every decoding request and count them."""
        k, state = step.k, self._state
        logs = np.log(self._random.random(decoding))
        # P(at least j accepted) = a^j: the number of leading successes, cut at k.
        accepted: NDArray[np.float64] = np.floor(logs / state[_LOG_ACCEPTANCE, :decoding])
        np.minimum(accepted, k, out=accepted)
        keys = self._class_index[:decoding] * (k + 1) + accepted.astype(np.intp)
        if step.drafting is None:
            state[_DRAFTED, :decoding] += k
        else:
            accepted *= step.drafting
            keys = keys[step.drafting]
            state[_DRAFTED, :decoding] += k * step.drafting
        by_accepted = statistics.spec_counts(k, batch_bucket(step.running)).by_accepted
        by_accepted += np.bincount(keys, minlength=by_accepted.size).reshape(by_accepted.shape)
        state[_ACCEPTED, :decoding] += accepted
        return accepted

    def _tell(
        self,
        step: Step,
        tokens: NDArray[np.float64],
        accepted: NDArray[np.float64] | None,
        done: NDArray[np.bool_],
    ) -> None:
        """Hand outside requests their tokens."""
        for slot, request in enumerate(self.requests):
            if request.sink is None:
                continue
            drafted = taken = 0
            if accepted is not None and slot < len(accepted):
                drafted = step.k if step.drafting is None or step.drafting[slot] else 0
                taken = int(accepted[slot])
            reason = request.finished_reason if done[slot] else None
            request.sink(TokenEvent(int(tokens[slot]), drafted, taken, step.ends, reason))

    def _finish(
        self, slot: int, now: float, statistics: EngineStatistics, configured_k: int
    ) -> None:
        request = self.requests[slot]
        request.last_token = now
        lived = now - request.admitted
        load = self._running_seconds - request.running_seconds_before
        statistics.finish(
            request,
            RequestNumbers(
                num_speculative_tokens=configured_k,
                mean_running=load / lived if lived > 0 else float(request.running_at_admission),
                draft_tokens=float(self._state[_DRAFTED, slot]),
                accepted_tokens=float(self._state[_ACCEPTED, slot]),
            ),
        )

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        """Keep the running requests that `keep` marks, in order."""
        count = len(keep)
        kept = int(keep.sum())
        self._state[:, :kept] = self._state[:, :count][:, keep]
        self._class_index[:kept] = self._class_index[:count][keep]
        marked = zip(self.requests, keep.tolist(), strict=True)
        self.requests = [request for request, wanted in marked if wanted]
        self.listeners = sum(request.sink is not None for request in self.requests)
