"""Windows -> charts, step times, mix and class views: the pure part shared by every shell.

`ingest(state, windows, context)` is what the controller runs on live scrapes and `specdrift
replay` on recorded ones. It has no clock: all times are those of the windows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specdrift import conventions as names
from specdrift.core import detector, sentences
from specdrift.core.cost import Ledger, account
from specdrift.core.detector import ChartPhase, ChartState, DetectorConfig, Observation, Signal
from specdrift.core.diagnosis import Diagnosis, Evidence, diagnose
from specdrift.core.economics import (
    Estimate,
    Operating,
    SpeedRow,
    StepTimes,
    merge_rows,
    operating_point,
    speed_row,
    speedup,
)
from specdrift.core.engines.model import Histogram, SpecCounters
from specdrift.core.estimators import Share, decompose
from specdrift.core.latency import merge
from specdrift.core.policy import ClassView
from specdrift.core.windows import NO_SPEC, Window, WindowState, add_spec

KEEP = 60
RECENT_ROWS = 8
MIX_WINDOWS = 24
MIX_DISTANCE = 0.15
# A change of mix is reported when a share is this many standard errors from its reference. Shares
# of overlapping requests wander: their spread is learned in Phase I, in blocks of a few windows.
MIX_ERRORS = 3.5
MIX_BLOCK = 4
MIX_HOLD = 0.6
MOST_MIX_BLOCKS = 64
SMALLEST_SHARE_SPREAD = 0.02
# While an alarm is young its cause is looked at again: other classes may follow.
REVISED_WINDOWS = 30
OFF_KEY = "off"
# Nothing read for so many scrape intervals: what is remembered says nothing of now.
STALE_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class AlarmRecord:
    """A signal with its chart, class and diagnosis, as shells show it."""

    traffic_class: str
    config_key: str
    signal: Signal
    cause: str
    evidence: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class Recent:
    """What one window told, kept for rates over the last few: speed, counts, counts by class."""

    time: float
    row: SpeedRow | None
    spec: SpecCounters | None
    by_class: tuple[Share, ...]
    seconds: float = 0.0
    waiting: float | None = None
    time_per_output_token: Histogram | None = None
    time_to_first_token: Histogram | None = None
    class_output_tokens: Mapping[str, float] = field(default_factory=dict)
    class_step_seconds: Mapping[str, float] = field(default_factory=dict)
    class_request_steps: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """What the shell knows and the windows do not tell.

    Attributes:
        config_key: Names the speculative config in force ("eagle3:3"), None to read K off the
            page.
        home_key: Config key of the as-found config; charts under it carry the alarms.
        own_restart: The engine was last restarted by specdrift itself.
        version_changed: Engine version or other arguments changed at the last restart.
        blended: Watch one chart over all traffic although classes are known.
    """

    detector: DetectorConfig
    config_key: str | None = None
    home_key: str | None = None
    own_restart: bool = False
    version_changed: bool = False
    blended: bool = False


@dataclass(frozen=True, slots=True)
class PipelineState:
    """All that detection, diagnosis and economics remember of one workload."""

    charts: Mapping[str, ChartState] = field(default_factory=dict)
    alarms: Mapping[str, AlarmRecord] = field(default_factory=dict)
    step_times: Mapping[str, StepTimes] = field(default_factory=dict)
    recent: tuple[Recent, ...] = ()
    recent_key: str = ""
    base_shares: Mapping[str, Share] = field(default_factory=dict)
    mix_blocks: tuple[Mapping[str, float], ...] = ()
    home_tokens: float = 0.0
    home_steps: float = 0.0
    restarted_at: float | None = None
    last_state: str = WindowState.FIRST.value
    ledger: Ledger = field(default_factory=Ledger)


def ingest(
    state: PipelineState, windows: Sequence[Window], context: Context
) -> tuple[PipelineState, tuple[AlarmRecord, ...]]:
    """Take in the windows of one tick (one per instance); returns new alarms."""
    if not windows:
        return state, ()
    state = replace(state, last_state=_overall(windows).value)
    key = context.config_key or _key_from(windows, state.recent_key)
    # One replica of many that restarts loses its own window, no more.
    restarts = [w for w in windows if w.state is WindowState.RESTARTED]
    restarted = 2 * len(restarts) >= len(windows) and bool(restarts)
    if restarted or (key and key != state.recent_key) or _is_stale(state, windows, context):
        state = replace(
            state,
            recent=(),
            recent_key=key or state.recent_key,
            restarted_at=max(w.end for w in restarts) if restarted else state.restarted_at,
        )
    if in_force := key or state.recent_key:
        off = in_force == OFF_KEY
        ledger = account(state.ledger, windows, in_force, reference(state), off=off)
        state = replace(state, ledger=ledger)
    measurable = [w for w in windows if w.state in _MEASURABLE]
    good = [w for w in measurable if key is not None and _key_of_window(w) == key]
    state = _learn_elsewhere(state, [w for w in measurable if w not in good])
    shares = _shares(good, context.blended)
    if good and key:
        state = _remember(state, good, shares, key, context)
    return _step_charts(state, windows, good, shares, key, restarted, context)


def _is_stale(state: PipelineState, windows: Sequence[Window], context: Context) -> bool:
    """Tell whether what is remembered is too old to judge by: nothing was read since."""
    if not state.recent or any(w.state in _MEASURABLE for w in windows):
        return False
    age = max(w.end for w in windows) - state.recent[-1].time
    return age > STALE_WINDOWS * context.detector.scrape_interval


def _learn_elsewhere(state: PipelineState, windows: Sequence[Window]) -> PipelineState:
    """Learn the step times of replicas that run another config: one that is off tells T(B, 0)."""
    tables = dict(state.step_times)
    for window in windows:
        key, row = _key_of_window(window), speed_row(window)
        if key is not None and row is not None:
            tables[key] = tables.get(key, StepTimes()).add(row)
    return replace(state, step_times=tables) if windows else state


_MEASURABLE = (WindowState.OK, WindowState.NO_TRAFFIC, WindowState.SPECULATION_OFF)


def _overall(windows: Sequence[Window]) -> WindowState:
    order = (WindowState.OK, WindowState.SPECULATION_OFF, WindowState.NO_TRAFFIC)
    states = {w.state for w in windows}
    for state in order:
        if state in states:
            return state
    return windows[0].state


def _key_from(windows: Sequence[Window], present: str) -> str | None:
    """Return the config key most of the work ran under, None when no instance answered.

    The present one is kept while a third of the work runs under it: replicas of two configs that
    share the load alike must not take turns.
    """
    weights: dict[str, float] = {}
    for window in windows:
        key = _key_of_window(window)
        if key is not None:
            weights[key] = weights.get(key, 0.0) + 1.0 + (window.request_steps or 0.0)
    if weights.get(present, 0.0) >= sum(weights.values()) / 3 > 0:
        return present
    return max(sorted(weights), key=lambda k: (weights[k], k != OFF_KEY), default=None)


def _key_of_window(window: Window) -> str | None:
    if window.state is WindowState.SPECULATION_OFF:
        return OFF_KEY
    if window.spec is not None or window.state is WindowState.K_CHANGED:
        return f"{window.method or 'unknown'}:{window.num_speculative_tokens or 'unknown'}"
    return None


def _shares(windows: Sequence[Window], blended: bool) -> dict[str, SpecCounters]:
    """Return counts by class over all instances; without a tap everything is one class."""
    totals: dict[str, SpecCounters] = {}
    for window in windows:
        if window.by_class and not blended:
            for c in window.by_class:
                if c.num_speculative_tokens not in (None, window.num_speculative_tokens):
                    continue  # counted at another K: not comparable
                totals[c.traffic_class] = add_spec(totals.get(c.traffic_class, NO_SPEC), c.spec)
        elif window.spec is not None and (blended or not window.class_output_tokens):
            name = names.CLASS_DEFAULT
            totals[name] = add_spec(totals.get(name, NO_SPEC), window.spec)
    return totals


def _remember(
    state: PipelineState,
    windows: Sequence[Window],
    shares: Mapping[str, SpecCounters],
    key: str,
    context: Context,
) -> PipelineState:
    rows = [row for row in (speed_row(w) for w in windows) if row is not None]
    row = merge_rows(rows)
    specs = [w.spec for w in windows if w.spec is not None]
    spec = NO_SPEC if specs else None
    for one in specs:
        spec = add_spec(spec or NO_SPEC, one)
    recent = Recent(
        max(w.end for w in windows),
        row,
        spec,
        tuple(Share(n, c.draft_tokens, c.accepted_tokens) for n, c in sorted(shares.items())),
        max(w.seconds for w in windows),
        _waiting(windows),
        merge(w.time_per_output_token for w in windows).histogram,
        merge(w.time_to_first_token for w in windows).histogram,
        _summed([w.class_output_tokens for w in windows]),
        _summed([w.class_step_seconds for w in windows]),
        _summed([w.class_request_steps for w in windows]),
    )
    state = replace(state, recent=(*state.recent, recent)[-KEEP:], recent_key=key)
    if row is None:
        return state
    tables = dict(state.step_times)
    tables[key] = tables.get(key, StepTimes()).add(row)
    state = replace(state, step_times=tables)
    if key == context.home_key and not any(_is_home(state, k, context) for k in state.alarms):
        state = replace(
            state,
            home_tokens=state.home_tokens * 0.999 + row.tokens,
            home_steps=state.home_steps * 0.999 + row.request_steps,
        )
    return state


def _waiting(windows: Sequence[Window]) -> float | None:
    known = [w.waiting for w in windows if w.waiting is not None]
    return sum(known) if known else None


def _summed(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _is_home(state: PipelineState, chart: str, context: Context) -> bool:
    return state.alarms[chart].config_key == context.home_key


def _step_charts(
    state: PipelineState,
    windows: Sequence[Window],
    good: Sequence[Window],
    shares: Mapping[str, SpecCounters],
    key: str | None,
    restarted: bool,
    context: Context,
) -> tuple[PipelineState, tuple[AlarmRecord, ...]]:
    if key is None or key == OFF_KEY:
        return state, ()
    spans = good or [w for w in windows if w.state is WindowState.RESTARTED]
    if not spans:
        return state, ()
    start, end = min(w.start for w in spans), max(w.end for w in spans)
    charts, alarms = dict(state.charts), dict(state.alarms)
    base = dict(state.base_shares)
    fired: list[tuple[str, str, Signal]] = []
    seen = set(shares) | {_class_of(c) for c in charts if _key_of(c) == key}
    for name in sorted(seen):
        chart_key = f"{name}|{key}"
        chart = charts.get(chart_key, ChartState())
        spec = NO_SPEC if restarted else shares.get(name, NO_SPEC)
        observation = Observation(
            start, end, spec.drafts, spec.draft_tokens, spec.accepted_tokens, restarted
        )
        at_home = context.home_key in (None, key)
        if chart.phase is ChartPhase.LEARNING and not restarted and at_home:
            old = base.get(name, Share(name, 0.0, 0.0))
            base[name] = Share(
                name,
                old.draft_tokens + spec.draft_tokens,
                old.accepted_tokens + spec.accepted_tokens,
            )
        charts[chart_key], signal = detector.step(chart, observation, context.detector)
        if signal is not None:
            fired.append((chart_key, name, signal))
    frozen = _frozen_base(state, base, key)
    if frozen is base and len(state.recent) % MIX_BLOCK == 0:
        state = _with_mix_block(state)
    state = replace(state, charts=charts, base_shares=frozen)
    records = []
    for chart_key, name, signal in fired:
        record = _record(state, chart_key, name, key, signal, context)
        records.append(record)
        if signal.recovery:
            alarms.pop(chart_key, None)
        else:
            alarms[chart_key] = record
    alarms = {k: a for k, a in alarms.items() if charts[k].alarm is not None}
    return _revised(replace(state, alarms=alarms), context), tuple(records)


def _revised(state: PipelineState, context: Context) -> PipelineState:
    """Look at the cause of young alarms again, with the effect re-estimated since."""
    alarms = dict(state.alarms)
    for key, record in state.alarms.items():
        chart = state.charts[key]
        now = detector.current_effect(chart)
        if chart.alarm is None or now is None:
            continue
        if chart.alarm.since_alarm.windows > REVISED_WINDOWS:
            continue
        signal = replace(record.signal, effect=now[1], level_after=now[0])
        found = _diagnose(state, signal, record.config_key, context)
        alarms[key] = replace(
            record, cause=found.cause, evidence=found.evidence, advice=found.advice
        )
    return replace(state, alarms=alarms)


def _class_of(chart: str) -> str:
    return chart.rsplit("|", 1)[0]


def _key_of(chart: str) -> str:
    return chart.rsplit("|", 1)[1]


def _frozen_base(state: PipelineState, base: dict[str, Share], key: str) -> Mapping[str, Share]:
    """Stop adding to the reference mix once any class has its baseline.

    A class that first shows up later has no part in it: that is exactly a change of mix.
    """
    done = any(c.baseline is not None for k, c in state.charts.items() if _key_of(k) == key)
    return state.base_shares if done else base


def _record(
    state: PipelineState, chart_key: str, name: str, key: str, signal: Signal, context: Context
) -> AlarmRecord:
    if signal.recovery:
        standing = state.alarms.get(chart_key)
        cause = standing.cause if standing else names.CAUSE_UNKNOWN
        return AlarmRecord(name, key, signal, cause, ("acceptance is back at its baseline",), "")
    found = _diagnose(state, signal, key, context)
    return AlarmRecord(name, key, signal, found.cause, found.evidence, found.advice)


def _diagnose(state: PipelineState, signal: Signal, key: str, context: Context) -> Diagnosis:
    here = [c for k, c in state.charts.items() if _key_of(k) == key and c.baseline is not None]
    return diagnose(
        Evidence(
            side=signal.side.value,
            effect=signal.effect,
            baseline=signal.level_before,
            restarted=signal.changed_with_deployment,
            own_action=context.own_restart,
            version_changed=context.version_changed,
            classes_seen=max(1, len(here)),
            classes_alarmed=max(1, sum(c.phase is ChartPhase.ALARMED for c in here)),
        )
    )


# --- views ------------------------------------------------------------------------------------


def class_views(
    state: PipelineState, home_key: str | None, smallest: float
) -> tuple[ClassView, ...]:
    """Return one view per class: recent acceptance, and the home chart's alarm if one stands."""
    recent = recent_shares(state, RECENT_ROWS)
    classes = sorted(set(recent) | {_class_of(c) for c in state.charts})
    views = []
    for name in classes:
        share = recent.get(name)
        chart_key = f"{name}|{home_key or state.recent_key}"
        chart = state.charts.get(chart_key)
        view = ClassView(
            name,
            acceptance=share.acceptance if share else None,
            draft_tokens=share.draft_tokens if share else 0.0,
            baseline=chart.baseline.acceptance if chart and chart.baseline else None,
        )
        record = state.alarms.get(chart_key)
        if chart is not None and record is not None and chart.alarm is not None:
            now = detector.current_effect(chart)
            level, effect, interval = now or (
                record.signal.level_after,
                record.signal.effect,
                record.signal.interval,
            )
            view = replace(
                view,
                acceptance=view.acceptance if view.acceptance is not None else level,
                side=chart.alarm.side.value,
                cause=record.cause,
                evidence=record.evidence,
                advice=record.advice,
                effect=effect,
                interval=interval,
                alarm_time=chart.alarm.time,
                change_point=chart.alarm.change_point,
                windows_since_alarm=chart.alarm.since_alarm.windows,
                settled=detector.settled(chart, smallest),
                changed_with_deployment=chart.alarm.changed_with_deployment,
            )
        views.append(view)
    return tuple(views)


def recent_shares(state: PipelineState, windows: int) -> dict[str, Share]:
    """Return draft and accepted tokens by class over the last `windows` windows."""
    totals: dict[str, Share] = {}
    for recent in state.recent[-windows:]:
        for s in recent.by_class:
            old = totals.get(s.traffic_class, Share(s.traffic_class, 0.0, 0.0))
            totals[s.traffic_class] = Share(
                s.traffic_class,
                old.draft_tokens + s.draft_tokens,
                old.accepted_tokens + s.accepted_tokens,
            )
    return totals


def recent_rows(state: PipelineState, since: float = -math.inf) -> tuple[SpeedRow, ...]:
    """Return the speed of recent windows in the configuration in force, oldest first."""
    return tuple(r.row for r in state.recent if r.row is not None and r.time > since)


def reference(state: PipelineState) -> StepTimes:
    """Return T(B, 0) as measured so far."""
    return state.step_times.get(OFF_KEY, StepTimes())


def current_benefit(state: PipelineState, since: float = -math.inf) -> Estimate | None:
    """Return the measured speedup over the last windows after `since`, None when unknown."""
    if state.recent_key == OFF_KEY:
        return None
    rows = [r.row for r in _lately(state, since) if r.row is not None]
    return speedup(rows[-RECENT_ROWS:], reference(state))


def _lately(state: PipelineState, since: float) -> list[Recent]:
    """Return the windows that say something of now: of the last few, those with traffic."""
    return [r for r in state.recent[-2 * RECENT_ROWS :] if r.row is not None and r.time > since]


def current_point(state: PipelineState, since: float = -math.inf) -> Operating | None:
    """Return the operating point over the last windows after `since`."""
    chosen = _lately(state, since)[-RECENT_ROWS:]
    spec = NO_SPEC
    for recent in chosen:
        if recent.spec is not None:
            spec = add_spec(spec, recent.spec)
    k = len(spec.accepted_per_position)
    if spec.drafts > 0:
        k = max(k, round(spec.draft_tokens / spec.drafts))
    rows = [r.row for r in chosen if r.row is not None]
    return operating_point(rows, k, spec.drafts, spec.accepted_per_position)


def mix_change(state: PipelineState, smallest: float, *, standing: bool) -> str | None:
    """Return one sentence while the mix of the last windows is another than in Phase I.

    `standing` says that it was reported already: then it takes less to keep it up, so that a mix
    at the threshold is one report and not many.
    """
    scale = MIX_HOLD if standing else 1.0
    recent = recent_shares(state, MIX_WINDOWS)
    learning = not any(c.baseline is not None for c in state.charts.values())
    if learning or len(state.recent) < MIX_WINDOWS or len(set(recent) | set(state.base_shares)) < 2:
        return None
    before = [_at_baseline(state, s) for s in state.base_shares.values()]
    change = decompose(before, list(recent.values()))
    if change is None or change.distance < scale * MIX_DISTANCE:
        return None
    if not (change.unknown or abs(change.mix or 0.0) >= scale * smallest):
        return None
    beyond = any(
        abs(s1 - s0) > scale * MIX_ERRORS * _share_error(state, name)
        for name, s0, s1 in change.shares
    )
    return sentences.mix(change) if beyond else None


def _share_error(state: PipelineState, name: str) -> float:
    """Return the standard error of a class's share over the last windows against Phase I."""
    values = [block.get(name, 0.0) for block in state.mix_blocks]
    if len(values) < 2:
        return SMALLEST_SHARE_SPREAD
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    blocks = MIX_WINDOWS / MIX_BLOCK
    return max(SMALLEST_SHARE_SPREAD, spread) * math.sqrt(2.0 / blocks + 1.0 / len(values))


def _with_mix_block(state: PipelineState) -> PipelineState:
    """Add the shares of the last few windows to what the reference mix is known by."""
    totals = recent_shares(state, MIX_BLOCK)
    tokens = sum(s.draft_tokens for s in totals.values())
    if tokens <= 0:
        return state
    block = {name: s.draft_tokens / tokens for name, s in totals.items()}
    return replace(state, mix_blocks=(*state.mix_blocks, block)[-MOST_MIX_BLOCKS:])


def _at_baseline(state: PipelineState, share: Share) -> Share:
    for key, chart in state.charts.items():
        if _class_of(key) == share.traffic_class and chart.baseline is not None:
            return replace(share, accepted_tokens=share.draft_tokens * chart.baseline.acceptance)
    return share
