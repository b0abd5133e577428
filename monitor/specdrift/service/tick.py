"""One tick of the loop, and the shell that runs it.

collect windows -> estimate -> step detectors -> diagnose -> estimate economics -> decide ->
record the intent -> apply -> tell. Everything between collect and record is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specdrift.config import Policy
from specdrift.core import loop as loops
from specdrift.core import pipeline as pipes
from specdrift.core.economics import StepTimes
from specdrift.core.loop import Decision, LoopState, Phase
from specdrift.core.pipeline import AlarmRecord, Context, PipelineState
from specdrift.core.policy import AS_FOUND, Facts, Mode, Rollout, Rules
from specdrift.core.sentences import alarm as alarm_sentence
from specdrift.core.windows import Snapshot, Window, WindowState, window_between
from specdrift.errors import ActuationError, StoreError
from specdrift.service import checkpoint, report
from specdrift.service.ports import (
    Actuator,
    Clock,
    Json,
    Narrator,
    Source,
    Store,
    StoredDecision,
    TickRecord,
)
from specdrift.service.views import DOCUMENT_OVERRIDE, DOCUMENT_STATE, OverrideView

DOCUMENT_MEMORY = "memory"
KEEP_POINTS_SECONDS = 7 * 86400.0
SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Ports:
    """The world, as the loop sees it. `actuator` is None where nothing can be changed."""

    clock: Clock
    source: Source
    store: Store
    narrator: Narrator
    actuator: Actuator | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What a tick hands to the next; all of it is in the store as well."""

    snapshots: Mapping[str, Snapshot]
    pipeline: PipelineState
    loop: LoopState
    version: str | None = None
    version_changed: bool = False
    home_key: str | None = None


def restore(ports: Ports, now: float, rules: Rules) -> Memory:
    """Load the memory a former run left, or begin anew and say what is lost."""
    text = ports.store.document(DOCUMENT_MEMORY)
    if text is not None:
        try:
            memory = checkpoint.load(Memory, text)
        except StoreError as error:
            ports.narrator.tell(now, "lost", str(error))
        else:
            return _met_again(memory, ports, now)
    found = ports.actuator.as_found() if ports.actuator is not None else None
    loop = loops.begin(found or {}, now)
    if text is not None and ports.actuator is not None:
        loop = loops.adopt(loop, ports.actuator.live(), now, rules)
    return Memory({}, PipelineState(), loop)


def _met_again(memory: Memory, ports: Ports, now: float) -> Memory:
    """Return the memory for a workload as it is now; its operator may have changed it meanwhile."""
    if ports.actuator is None:
        return memory
    found = ports.actuator.as_found() or {}
    if found == memory.loop.as_found:
        return memory
    ports.narrator.tell(
        now, "changed", "The workload's own speculative config was changed: taken as the original."
    )
    return replace(memory, loop=loops.begin(found, now), home_key=None)


class Controller:
    """Runs ticks over one workload."""

    def __init__(
        self, policy: Policy, ports: Ports, *, workload: str, simulated: bool = False
    ) -> None:
        self.policy = policy
        self.ports = ports
        self.workload = workload
        self.simulated = simulated
        self.memory = restore(ports, ports.clock.now(), policy.rules())

    def tick(self) -> tuple[tuple[AlarmRecord, ...], Decision | None]:
        """Run one tick; see the module's docstring for the order."""
        now = self.ports.clock.now()
        rules = self._rules()
        rollout = self._rollout()
        snapshots = self.ports.source.collect(now)
        windows = self._windows(snapshots)
        memory = self._meet(snapshots, windows)
        pipeline, alarms = pipes.ingest(memory.pipeline, windows, self._context(memory))
        memory = _with_home(memory, pipeline, windows)
        mix = pipes.mix_change(
            pipeline, rules.smallest_drop, standing=loops.MIX in memory.loop.said
        )
        facts = self._facts(now, pipeline, memory, rollout, mix, rules)
        loop, decision = loops.advance(memory.loop, facts, rules)
        before, self.memory = self.memory, replace(memory, pipeline=pipeline, loop=loop)
        try:
            self._record(now, facts, rules, before.loop, alarms, decision)
        except StoreError:
            self.memory = before  # what is not on disk did not happen: the next window spans both
            raise
        if loop.phase is Phase.ROLLOUT:
            self._rollout()  # the intent is on disk: take the first step at once
        self._tell(alarms, decision)
        if before.loop.phase is not Phase.ROLLOUT:  # its own restarts are told as what they are
            self._tell_reach(now, before.pipeline.last_state, pipeline.last_state, snapshots)
        return alarms, decision

    def observe(self) -> None:
        """Collect and learn, decide nothing: for a calibration before the loop begins."""
        now = self.ports.clock.now()
        snapshots = self.ports.source.collect(now)
        memory = self._meet(snapshots, windows := self._windows(snapshots))
        pipeline, _ = pipes.ingest(memory.pipeline, windows, self._context(memory))
        self.memory = replace(memory, pipeline=pipeline)
        self.ports.store.put_document(DOCUMENT_MEMORY, checkpoint.dump(self.memory))

    def adopt(self) -> None:
        """Start an engine that does not run; in act mode, give it the config it should have.

        Raises:
            ActuationError: It cannot be started.
        """
        if self.ports.actuator is None:
            return
        if self.policy.mode is not Mode.ACT and self.ports.actuator.running():
            return
        loop = self.memory.loop
        rollout = self.ports.actuator.ensure(loop.settings, f"{self.workload}-{loop.plan}")
        if rollout.status == "failed":
            raise ActuationError(rollout.reason)

    # --- parts of a tick -------------------------------------------------------------------------

    def _rules(self) -> Rules:
        rules = self.policy.rules()
        override = self.ports.store.document(DOCUMENT_OVERRIDE)
        if override is None:
            return rules
        asked = OverrideView.model_validate_json(override)
        if asked.mode is not None:
            rules = replace(rules, mode=asked.mode)
        if asked.paused and rules.mode is Mode.ACT:
            rules = replace(rules, mode=Mode.RECOMMEND)
        return rules

    def _rollout(self) -> Rollout:
        actuator, loop = self.ports.actuator, self.memory.loop
        if actuator is None:
            return Rollout("none")
        if loop.phase in (Phase.ROLLOUT, Phase.VERIFYING):
            return actuator.ensure(loop.settings, f"{self.workload}-{loop.plan}")
        return actuator.status()

    def _windows(self, snapshots: Sequence[Snapshot]) -> list[Window]:
        windows = []
        for snapshot in snapshots:
            window = window_between(self.memory.snapshots.get(snapshot.instance), snapshot)
            windows.append(self._with_method(window))
        return windows

    def _with_method(self, window: Window) -> Window:
        """Name the method from the command line in force, where the page cannot."""
        live = self.ports.actuator.live() if self.ports.actuator is not None else None
        if window.method is not None or live is None:
            return window
        same = live.get("num_speculative_tokens") == window.num_speculative_tokens
        return replace(window, method=str(live.get("method", "unknown"))) if same else window

    def _meet(self, snapshots: Sequence[Snapshot], windows: Sequence[Window]) -> Memory:
        """Remember the good snapshots, and ask a replaced process what it is."""
        kept = dict(self.memory.snapshots)
        kept.update({s.instance: s for s in snapshots if s.counters is not None})
        memory = replace(self.memory, snapshots=kept)
        news = any(w.state in (WindowState.RESTARTED, WindowState.FIRST) for w in windows)
        if not news:
            return memory
        version = self.ports.source.engine_version()
        if version is None:
            return memory
        changed = memory.version is not None and version != memory.version
        return replace(memory, version=version, version_changed=changed)

    def _context(self, memory: Memory) -> Context:
        classes = {key.rsplit("|", 1)[0] for key in memory.pipeline.charts}
        began, done = memory.pipeline.restarted_at, memory.loop.last_action
        patience = self.policy.spec.safety.rollout_timeout
        own = began is not None and done is not None and 0 <= began - done <= patience
        charts = max(1, len(classes), len(self.policy.spec.classes))
        return Context(
            detector=self.policy.detector_config(charts),
            home_key=_home(memory),
            own_restart=own,
            version_changed=memory.version_changed,
        )

    def _facts(
        self,
        now: float,
        pipeline: PipelineState,
        memory: Memory,
        rollout: Rollout,
        mix: str | None,
        rules: Rules,
    ) -> Facts:
        loop, home = memory.loop, _home(memory)
        classes = pipes.class_views(pipeline, home, rules.smallest_drop)
        alarms = [c.alarm_time for c in classes if c.alarm_time is not None]
        # Judge on windows after the youngest alarm only: what came before is another regime.
        since = max(alarms, default=-1e18) if loop.phase is Phase.STEADY else loop.since
        spent = pipeline.home_steps
        return Facts(
            now=now,
            workload=self.workload,
            classes=classes,
            rows=pipes.recent_rows(pipeline, since),
            reference=pipes.reference(pipeline),
            point=pipes.current_point(pipeline, since),
            benefit=pipes.current_benefit(pipeline, since),
            rollout=rollout,
            baseline_length=pipeline.home_tokens / spent if spent > 0 else None,
            as_found_times=pipeline.step_times.get(home or "", StepTimes()),
            present_times=pipeline.step_times.get(pipeline.recent_key, StepTimes()),
            mix=mix,
            in_maintenance=_in_maintenance(now, rules.maintenance_only),
        )

    def _record(
        self,
        now: float,
        facts: Facts,
        rules: Rules,
        before: LoopState,
        alarms: Sequence[AlarmRecord],
        decision: Decision | None,
    ) -> None:
        stored: tuple[StoredDecision, ...] = ()
        if decision is not None:
            inputs = checkpoint.dump_inputs(before, facts, rules)
            stored = (StoredDecision(now, checkpoint.dump(decision), inputs),)
        view = report.state_view(self, facts, rules, decision)
        self.ports.store.commit(
            TickRecord(
                time=now,
                documents={DOCUMENT_MEMORY: checkpoint.dump(self.memory), DOCUMENT_STATE: view},
                point=report.point_view(self.memory.pipeline, facts, self.memory.loop, self.policy),
                alarms=tuple(checkpoint.dump(a) for a in alarms),
                decisions=stored,
                keep_points_since=now - KEEP_POINTS_SECONDS,
            )
        )

    def _tell(self, alarms: Sequence[AlarmRecord], decision: Decision | None) -> None:
        for record in alarms:
            kind = "recovery" if record.signal.recovery else "alarm"
            self.ports.narrator.tell(record.signal.time, kind, alarm_sentence(record))
        if decision is not None:
            self.ports.narrator.tell(decision.time, decision.kind.value, decision.sentence)

    def _tell_reach(
        self, now: float, before: str, after: str, snapshots: Sequence[Snapshot]
    ) -> None:
        down = WindowState.DOWN.value
        if after == down != before:
            why = next((s.error for s in snapshots if s.error), "it does not answer")
            self.ports.narrator.tell(now, "down", f"Nothing can be seen of {self.workload}: {why}")
        elif before == down != after:
            self.ports.narrator.tell(now, "up", f"{self.workload} can be seen again.")


def _home(memory: Memory) -> str | None:
    """Return the key of the original config: as its page showed it, else as its argv says."""
    if memory.home_key is not None or not memory.loop.as_found:
        return memory.home_key
    return config_key(memory.loop.as_found)


def _with_home(memory: Memory, pipeline: PipelineState, windows: Sequence[Window]) -> Memory:
    """Learn the original config's key from the first page seen while it is in force."""
    loop = memory.loop
    known = memory.home_key is not None or not pipeline.recent_key
    asked = loop.phase is Phase.STEADY and loop.rung == AS_FOUND and bool(loop.as_found)
    if known or not asked or not any(w.state is WindowState.OK for w in windows):
        return memory
    return replace(memory, home_key=pipeline.recent_key)


def config_key(settings: Json) -> str:
    """Return the key of a speculative config, as the pipeline names configurations."""
    method = str(settings.get("method") or "unknown")
    return f"{method}:{settings.get('num_speculative_tokens') or 'unknown'}"


def _in_maintenance(now: float, windows: Sequence[tuple[float, float]]) -> bool:
    """Tell whether a patch may be made now; windows are seconds of the UTC day, may wrap."""
    if not windows:
        return True
    second = now % SECONDS_PER_DAY
    return any(a <= second < b if a <= b else (second >= a or second < b) for a, b in windows)
