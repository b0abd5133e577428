"""The pure pipeline over a recording: what would have been alarmed and decided, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specdrift.adapters.trace import TraceScrape
from specdrift.core import benefit as benefits
from specdrift.core import loop as loops
from specdrift.core import pipeline as pipes
from specdrift.core.attribution import Attribution
from specdrift.core.benefit import Run, Slice
from specdrift.core.detector import DetectorConfig
from specdrift.core.economics import StepTimes
from specdrift.core.loop import Decision
from specdrift.core.pipeline import AlarmRecord, Context, PipelineState
from specdrift.core.policy import Facts, Mode, Rollout, Rules
from specdrift.core.records import Change, Labels, RequestRecord
from specdrift.core.windows import Snapshot, Window, WindowState, window_between
from specdrift.service.recorded import snapshots_of

# How long after a change was complete an alarm still counts as found because of it.
CREDIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """One change of the labels and the alarm that found it, if one did."""

    change: Change
    alarm: AlarmRecord | None
    delay: float | None


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a recording.

    Attributes:
        failed: Scrapes without a page; `unreadable`: pages that are no exposition.
        found: Changes of the labels with their delays; empty without labels.
        false_alarms: Alarms that no change of the labels explains; None without labels.
        unattributed: Share of draft tokens the request log does not account for; None without it.
        benefit: What speculation was worth, every few seconds; None without a reference.
        benefit_runs: The same by stretches of one verdict.
    """

    scrapes: int
    failed: int
    windows: int
    start: float
    end: float
    alarms: tuple[AlarmRecord, ...]
    decisions: tuple[Decision, ...]
    pipeline: PipelineState
    found: tuple[Found, ...] = ()
    false_alarms: int | None = None
    unattributed: float | None = None
    benefit: tuple[Slice, ...] | None = None
    benefit_runs: tuple[Run, ...] = ()


def replay(
    scrapes: Iterable[TraceScrape],
    detector: DetectorConfig,
    rules: Rules,
    *,
    requests: Sequence[RequestRecord] = (),
    labels: Labels | None = None,
    workload: str = "trace",
    reference: StepTimes | None = None,
) -> Replay:
    """Run a recording through windows, charts, diagnosis and decisions.

    Without a request log there is one chart over all traffic; with one there is a chart per class
    and a change of mix is told from drift.
    """
    rules = replace(rules, mode=Mode.RECOMMEND)
    charts = max(1, len({r.traffic_class for r in requests}))
    context = Context(replace(detector, charts=charts), blended=not requests)
    runner = _Runner(context, rules, workload, requests, reference)
    for scrape in scrapes:
        runner.take(scrape)
    return runner.result(labels)


class _Runner:
    """Walks through a recording one scrape at a time."""

    def __init__(
        self,
        context: Context,
        rules: Rules,
        workload: str,
        requests: Sequence[RequestRecord],
        reference: StepTimes | None,
    ) -> None:
        self._context = context
        self._rules = rules
        self._workload = workload
        self._requests = requests
        self._attribution: Attribution | None = None
        self._good: dict[str, Snapshot] = {}
        self._reference = reference
        known = {pipes.OFF_KEY: reference} if reference is not None else {}
        self._pipeline = PipelineState(step_times=known)
        self._seen: list[Window] = []
        self._loop = loops.begin({}, 0.0)
        self._alarms: list[AlarmRecord] = []
        self._decisions: list[Decision] = []
        self._times: list[float] = []
        self._failed = self._windows = 0
        self._total = self._attributed = 0.0

    def take(self, scrape: TraceScrape) -> None:
        self._times.append(scrape.t)
        snapshots = snapshots_of(scrape)
        if any(s.counters is None for s in snapshots):
            self._failed += 1
        windows = []
        for snapshot in snapshots:
            window = window_between(self._good.get(snapshot.instance), snapshot)
            if snapshot.counters is not None:
                self._good[snapshot.instance] = snapshot
            windows.append(self._by_class(window))
            if self._reference is not None:
                self._seen.append(window)
        self._windows += sum(w.state is WindowState.OK for w in windows)
        self._pipeline, alarms = pipes.ingest(self._pipeline, windows, self._context)
        mix = pipes.mix_change(
            self._pipeline, self._rules.smallest_drop, standing=loops.MIX in self._loop.said
        )
        self._alarms.extend(alarms)
        facts = self._facts(scrape.t, mix)
        self._loop, decision = loops.advance(self._loop, facts, self._rules)
        if decision is not None:
            self._decisions.append(decision)

    def _by_class(self, window: Window) -> Window:
        if not self._requests or window.state is not WindowState.OK or window.spec is None:
            return window
        if self._attribution is None:
            self._attribution = Attribution(self._requests, window.num_speculative_tokens or 1)
        classes = self._attribution.between(window.start, window.end)
        self._total += window.spec.draft_tokens
        self._attributed += sum(c.spec.draft_tokens for c in classes)
        # Something to say of classes even in a window where none has a step.
        return replace(window, by_class=classes, class_output_tokens={"": 0.0})

    def _facts(self, now: float, mix: str | None) -> Facts:
        classes = pipes.class_views(self._pipeline, None, self._rules.smallest_drop)
        alarms = [c.alarm_time for c in classes if c.alarm_time is not None]
        since = max(alarms, default=-1e18)
        return Facts(
            now=now,
            workload=self._workload,
            classes=classes,
            rows=pipes.recent_rows(self._pipeline, since),
            reference=pipes.reference(self._pipeline),
            point=pipes.current_point(self._pipeline, since),
            benefit=pipes.current_benefit(self._pipeline, since),
            rollout=Rollout("none"),
            mix=mix,
        )

    def result(self, labels: Labels | None) -> Replay:
        """Return what was found, scored against the labels if there are any."""
        changes = labels.changes() if labels is not None else ()
        found, false = _score(changes, self._alarms)
        slices = runs = None
        if self._reference is not None:
            slices = benefits.timeline(self._seen, self._reference)
            runs = benefits.runs(slices, self._reference)
        share = max(0.0, 1 - self._attributed / self._total) if self._total > 0 else None
        return Replay(
            scrapes=len(self._times),
            failed=self._failed,
            windows=self._windows,
            start=self._times[0] if self._times else 0.0,
            end=self._times[-1] if self._times else 0.0,
            alarms=tuple(self._alarms),
            decisions=tuple(self._decisions),
            pipeline=self._pipeline,
            found=found,
            false_alarms=false if labels is not None else None,
            unattributed=share,
            benefit=slices,
            benefit_runs=runs or (),
        )


def _score(
    changes: Sequence[Change], alarms: Sequence[AlarmRecord]
) -> tuple[tuple[Found, ...], int]:
    """Give each change the first alarm after it began; alarms no change explains are false."""
    explained: set[int] = set()
    found = []
    for change in changes:
        near = [
            i
            for i, record in enumerate(alarms)
            if change.start <= record.signal.time <= change.end + CREDIT_SECONDS
        ]
        explained.update(near)
        hit = alarms[near[0]] if near else None
        found.append(Found(change, hit, hit.signal.time - change.start if hit else None))
    return tuple(found), len(alarms) - len(explained)
