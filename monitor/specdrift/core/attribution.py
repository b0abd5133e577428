"""A request log -> counts by class and window, for recordings made without a tap.

A streamed chunk of n tokens after the first is one step with n - 1 accepted tokens; where the
engine reported per-step counts they are used, spread over the request where chunks have no times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from specdrift.core.engines.model import SpecCounters
from specdrift.core.records import RequestRecord, RequestSpec
from specdrift.core.windows import NO_SPEC, ClassWindow, add_spec

Step = tuple[float, str, float, float]  # time, class, draft tokens, accepted tokens


class Attribution:
    """Counts by class between any two times of a recording.

    Args:
        requests: The log, in any order.
        num_speculative_tokens: K, for logs that only hold the sizes of chunks.
    """

    def __init__(self, requests: Sequence[RequestRecord], num_speculative_tokens: int) -> None:
        steps: list[Step] = []
        self.unreadable = 0
        for request in requests:
            found = _steps(request, num_speculative_tokens)
            if found is None:
                self.unreadable += 1
            else:
                steps.extend(found)
        steps.sort()
        self._steps = steps
        self._times = [s[0] for s in steps]
        self._k = num_speculative_tokens

    def between(self, start: float, end: float) -> tuple[ClassWindow, ...]:
        """Return the counts by class of steps in (start, end], unix seconds."""
        totals: dict[str, SpecCounters] = {}
        low, high = bisect_right(self._times, start), bisect_right(self._times, end)
        for _, name, drafted, accepted in self._steps[low:high]:
            if drafted > 0:
                one = SpecCounters(1.0, drafted, accepted)
                totals[name] = add_spec(totals.get(name, NO_SPEC), one)
        return tuple(ClassWindow(name, self._k, c) for name, c in sorted(totals.items()))


def _steps(request: RequestRecord, k: int) -> list[Step] | None:
    spec = request.spec or request.spec_from_chunks(k)
    if spec is None:
        return None
    name = request.traffic_class
    if not spec.per_step_accepted:
        return [(request.end, name, spec.draft_tokens, spec.accepted_tokens)]
    times = _step_times(request, spec)
    drafted = spec.per_step_drafted or (k,) * len(spec.per_step_accepted)
    return [
        (t, name, float(d), float(a))
        for t, d, a in zip(times, drafted, spec.per_step_accepted, strict=True)
    ]


def _step_times(request: RequestRecord, spec: RequestSpec) -> list[float]:
    """Return when each step ended: the chunks' times where they match, else evenly spread."""
    count = len(spec.per_step_accepted)
    if len(request.chunks) == count + 1:
        return [request.start + offset for offset, _ in request.chunks[1:]]
    first = request.start + (request.ttft_seconds or 0.0)
    return [first + (request.end - first) * (i + 1) / count for i in range(count)]
