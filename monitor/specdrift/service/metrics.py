"""The controller's own state as Prometheus series, made from the state document when scraped.

What is not known has no sample: absent and zero are different facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from specdrift import __version__
from specdrift import conventions as names
from specdrift.core.detector import ChartPhase, Side
from specdrift.core.loop import Kind
from specdrift.core.windows import WindowState
from specdrift.service.views import ClassStateView, StateView

# Kind of a decision -> outcome in the actions counter; what is not here is no action.
OUTCOMES = {
    Kind.ACT: names.OUTCOME_STARTED,
    Kind.VERIFIED: names.OUTCOME_VERIFIED,
    Kind.UNDO: names.OUTCOME_UNDONE,
    Kind.PROBE: names.OUTCOME_PROBED,
    Kind.FALL_BACK: names.OUTCOME_FELL_BACK,
    Kind.RECOVERED: names.OUTCOME_RECOVERED,
}
_UNREADABLE = (WindowState.DOWN, WindowState.MISSING)


class StateCollector(Collector):
    """Turns the state document into series at every scrape.

    Args:
        state: Returns the present state document, None before the first tick.
        actions: Returns (kind, rung, how many) over all decisions.
        fresh: Whether that document is recent enough to be believed.
    """

    def __init__(
        self,
        state: Callable[[], StateView | None],
        actions: Callable[[], Sequence[tuple[str, str | None, int]]],
        fresh: Callable[[StateView], bool],
    ) -> None:
        self._state = state
        self._actions = actions
        self._fresh = fresh

    def describe(self) -> list[Metric]:
        """Return nothing: names are known, and registering must not read the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            names.CONTROLLER_BUILD_INFO, "The version of specdrift; always 1", labels=["version"]
        )
        info.add_metric([__version__], 1)
        yield info
        state = self._state()
        up = GaugeMetricFamily(
            names.CONTROLLER_UP,
            "1 when the last tick is recent and could read the engine's metrics page",
            labels=[names.LABEL_WORKLOAD],
        )
        if state is not None:
            good = self._fresh(state) and state.engine_state not in _UNREADABLE
            up.add_metric([state.workload], float(good))
        yield up
        if state is None:
            return
        yield from self._workload(state)
        yield from self._charts(state)
        yield _cost(state)
        counter = CounterMetricFamily(
            names.CONTROLLER_ACTIONS,
            "Decisions that changed or judged the configuration in force",
            labels=[names.LABEL_WORKLOAD, names.LABEL_RUNG, names.LABEL_OUTCOME],
        )
        for kind, rung, count in self._actions():
            if kind in OUTCOMES:
                counter.add_metric([state.workload, rung or "", OUTCOMES[Kind(kind)]], count)
        yield counter

    def _workload(self, state: StateView) -> Iterator[Metric]:
        engine = GaugeMetricFamily(
            names.CONTROLLER_ENGINE_STATE,
            "1 for what the last window of the engine was, 0 for what it was not",
            labels=[names.LABEL_WORKLOAD, names.LABEL_STATE],
        )
        for one in WindowState:
            engine.add_metric([state.workload, one.value], float(one is state.engine_state))
        yield engine
        last = state.last_decision
        for name, text, value in (
            (names.CONTROLLER_LAST_TICK, "When the loop last ran", state.time),
            (
                names.CONTROLLER_LAST_DECISION,
                "When the loop last decided something",
                last.time if last is not None else None,
            ),
            (
                names.CONTROLLER_BREAK_EVEN,
                "Acceptance rate at which speculation neither gains nor loses",
                state.break_even_acceptance,
            ),
        ):
            gauge = GaugeMetricFamily(name, text, labels=[names.LABEL_WORKLOAD])
            if value is not None:
                gauge.add_metric([state.workload], value)
            yield gauge
        speedup = GaugeMetricFamily(
            names.CONTROLLER_SPEEDUP,
            "Measured speed over the speed without speculation, and its 95% interval",
            labels=[names.LABEL_WORKLOAD, names.LABEL_BOUND],
        )
        benefit = state.benefit
        if benefit is not None:
            bounds = (("value", benefit.value), ("low", benefit.low), ("high", benefit.high))
            for bound, number in bounds:
                if number is not None:
                    speedup.add_metric([state.workload, bound], number)
        yield speedup

    def _charts(self, state: StateView) -> Iterator[Metric]:
        by_class = [names.LABEL_WORKLOAD, names.LABEL_CLASS]
        phases = GaugeMetricFamily(
            names.CONTROLLER_STATE,
            "1 for what the chart of a class is doing, 0 for what it is not",
            labels=[*by_class, names.LABEL_STATE],
        )
        baseline = GaugeMetricFamily(
            names.CONTROLLER_BASELINE, "Acceptance rate learned in Phase I", labels=by_class
        )
        cusum = GaugeMetricFamily(
            names.CONTROLLER_CUSUM,
            "CUSUM statistic by side and drop looked for; an alarm above the decision interval",
            labels=[*by_class, names.LABEL_SIDE, names.LABEL_DROP],
        )
        intervals = GaugeMetricFamily(
            names.CONTROLLER_DECISION_INTERVAL,
            "Value of the CUSUM statistic above which it is an alarm",
            labels=[*by_class, names.LABEL_DROP],
        )
        for one in state.classes:
            labels = [state.workload, one.traffic_class]
            for phase in ChartPhase:
                phases.add_metric([*labels, phase.value], float(phase is one.chart_phase))
            if one.baseline is not None:
                baseline.add_metric(labels, one.baseline)
            for side, values in _sides(one):
                for i, value in enumerate(values):
                    if value is not None:
                        cusum.add_metric([*labels, side.value, _drop(state, i)], value)
            for i, value in enumerate(one.decision_intervals):
                if value is not None:
                    intervals.add_metric([*labels, _drop(state, i)], value)
        yield from (phases, baseline, cusum, intervals)


def _cost(state: StateView) -> Metric:
    gauge = GaugeMetricFamily(
        names.CONTROLLER_COST,
        "Dollars per million output tokens over about the last hour; busy: of time with a request "
        "running, billed: of all time",
        labels=[names.LABEL_WORKLOAD, names.LABEL_CLASS, names.LABEL_BASIS],
    )
    for one in state.cost.classes if state.cost is not None else ():
        if one.dollars_per_million_tokens is not None:
            labels = [state.workload, one.name, one.basis]
            gauge.add_metric(labels, one.dollars_per_million_tokens)
    return gauge


def _sides(one: ClassStateView) -> tuple[tuple[Side, tuple[float | None, ...]], ...]:
    return (Side.DROP, one.cusum.drop), (Side.RISE, one.cusum.rise)


def _drop(state: StateView, i: int) -> str:
    """Return the drop that a statistic looks for, as a label; its place where that is unknown."""
    return f"{state.drops[i]:g}" if i < len(state.drops) else str(i)


def exposition(collector: StateCollector) -> bytes:
    """Return the page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
