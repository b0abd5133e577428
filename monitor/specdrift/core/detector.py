"""CUSUM charts of acceptance: step(state, observation) -> (state, signal).

One chart per traffic class and speculative configuration. In information time: with
I = 1 / (v(D) F) and a bank of drops delta in {d, 2d, 4d},

    S <- max(0, S + delta I (clip(p0 - x) - guard - delta / 2))      (drop side; rise mirrored)

Alarm when any S exceeds its decision interval h = delta sqrt(mean I) h_std, h_std from the
average run length of the normal CUSUM so that *all* charts of a policy together raise one false
alarm per `false_alarm_interval`. The change point is the last zero of the firing statistic.

After an alarm the chart watches for the return to the baseline (an SPRT between the level since
the change and p0). After a restart a changeover test compares the first windows with the held
baseline (a confidence sequence: valid at every look, with its own error budget).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from specdrift.core.calibration import decision_interval_for
from specdrift.core.estimators import Baseline, learn_baseline

CLIP_SIGMAS = 4.0
BANK = (1.0, 2.0, 4.0)
# Theory alone missed its promise in two of three traffic types (reference, section 1.4).
INTERVAL_FACTOR = 1.4
# Beyond this a single window decides; the interval is then solved for here and grows with d.
LARGEST_ALLOWANCE = 2.0
# An alarm that began so many windows after a restart, at most, is put down to the restart.
DEPLOYED_WINDOWS = 20
# A return is believed after so many windows, however loud one of them is.
FEWEST_RECOVERED = 3
# A clock that went back by more windows than this was set: time goes on from there.
CLOCK_SET_WINDOWS = 20
CHANGEOVER_ERROR = 1e-3
CHANGEOVER_WINDOWS = 240
CHANGEOVER_FEWEST = 4
RECENT = 30
MOST_PHASE_ONE = 6000
STATE_VERSION = 1


class ChartPhase(StrEnum):
    """What a chart is doing."""

    LEARNING = "learning"
    WATCHING = "watching"
    ALARMED = "alarmed"


class Side(StrEnum):
    """Direction of a change."""

    DROP = "drop"
    RISE = "rise"


@dataclass(frozen=True, slots=True)
class DetectorConfig:
    """What operators configure, and what follows from the policy.

    Attributes:
        false_alarm_interval: Seconds per false alarm, over all charts and both sides.
        smallest_drop: Smallest change of acceptance worth an alarm (absolute).
        phase_one: Seconds of traffic to learn the baseline from.
        scrape_interval: Nominal seconds per window.
        charts: Charts that share the false-alarm budget (one per class).
    """

    false_alarm_interval: float = 30 * 86400.0
    smallest_drop: float = 0.05
    phase_one: float = 86400.0
    scrape_interval: float = 15.0
    charts: int = 1


@dataclass(frozen=True, slots=True)
class Observation:
    """One window of one class: times in unix seconds, counts of drafts and tokens."""

    start: float
    end: float
    drafts: float
    draft_tokens: float
    accepted_tokens: float
    restarted: bool = False

    @property
    def acceptance(self) -> float:
        """Accepted tokens per draft token; only for windows with draft tokens."""
        return self.accepted_tokens / self.draft_tokens

    @property
    def usable(self) -> bool:
        """Whether the counts can be what they claim to be and there is something to learn."""
        values = (self.drafts, self.draft_tokens, self.accepted_tokens)
        return (
            all(math.isfinite(v) and v >= 0 for v in values)
            and self.drafts > 0
            and self.draft_tokens > 0
            and self.accepted_tokens <= self.draft_tokens
            and self.end > self.start
        )


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Precision-weighted mean of windows: sum of information, of information times x, count."""

    information: float = 0.0
    weighted: float = 0.0
    windows: int = 0

    def add(self, information: float, acceptance: float) -> Accumulator:
        """Return the accumulator with one more window."""
        return Accumulator(
            self.information + information,
            self.weighted + information * acceptance,
            self.windows + 1,
        )

    @property
    def mean(self) -> float | None:
        """Weighted mean, or None when nothing was added."""
        return self.weighted / self.information if self.information > 0 else None


@dataclass(frozen=True, slots=True)
class Statistic:
    """One CUSUM: value, start of its present excursion, and what was seen since."""

    value: float = 0.0
    since: float = 0.0
    seen: Accumulator = Accumulator()


@dataclass(frozen=True, slots=True)
class ActiveAlarm:
    """An alarm that stands: what it said, and what has been seen since.

    Attributes:
        recovery: Log-likelihood ratio for "back at the baseline" against "at the new level".
        recent: (information, acceptance) of the last windows, oldest first.
    """

    side: Side
    time: float
    change_point: float
    changed_with_deployment: bool
    since_alarm: Accumulator = Accumulator()
    recovery: Statistic = Statistic()
    recent: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ChartState:
    """Everything one chart knows; serialisable as JSON (service/checkpoint)."""

    phase: ChartPhase = ChartPhase.LEARNING
    drafts: tuple[float, ...] = ()
    acceptance: tuple[float, ...] = ()
    tokens_per_draft: float = 0.0
    seconds_seen: float = 0.0
    empty_windows: int = 0
    baseline: Baseline | None = None
    previous_level: float | None = None
    intervals: tuple[float, ...] = ()
    drop: tuple[Statistic, ...] = ()
    rise: tuple[Statistic, ...] = ()
    alarm: ActiveAlarm | None = None
    changeover: Accumulator | None = None
    changeover_since: float = 0.0
    last_time: float = 0.0


@dataclass(frozen=True, slots=True)
class Signal:
    """A change of acceptance that was detected.

    Attributes:
        time: When it was detected; `change_point`: when it began, by the chart.
        effect: Acceptance since the change point minus the level before it (for the return from
            an alarm: minus the alarmed level), with a 95% `interval`.
        recovery: True when this is the return to the baseline after an alarm.
    """

    side: Side
    time: float
    change_point: float
    level_before: float
    level_after: float
    effect: float
    interval: tuple[float, float]
    changed_with_deployment: bool = False
    recovery: bool = False


def step(
    state: ChartState, observation: Observation, config: DetectorConfig
) -> tuple[ChartState, Signal | None]:
    """Advance one chart by one window; at most one signal comes out.

    A window without usable counts changes nothing but the tally of empty windows: "no traffic"
    is never "zero acceptance". Windows that do not move the clock forward are ignored.
    """
    if observation.end <= state.last_time:
        if state.last_time - observation.end < CLOCK_SET_WINDOWS * config.scrape_interval:
            return state, None
        state = replace(state, last_time=observation.start)  # the clock was set back
    if observation.restarted:
        # The window spans two processes: not comparable with either. Hold the baseline.
        return _begin_changeover(replace(state, last_time=observation.end), observation.end), None
    if not observation.usable:
        return replace(
            state, last_time=observation.end, empty_windows=state.empty_windows + 1
        ), None
    state = replace(state, last_time=observation.end)
    if state.phase is ChartPhase.LEARNING or state.baseline is None:
        return _learn(state, observation, config), None
    information = state.baseline.information(observation.drafts)
    if state.phase is ChartPhase.ALARMED:
        state, signal = _watch_recovery(state, observation, information, config)
        return state, signal
    state, signal = _watch(state, observation, information, config)
    if signal is None and state.changeover is not None:
        state, signal = _changeover(state, observation, information, config)
    return state, signal


def _learn(state: ChartState, o: Observation, config: DetectorConfig) -> ChartState:
    n = len(state.drafts)
    state = replace(
        state,
        drafts=(*state.drafts, o.drafts)[-MOST_PHASE_ONE:],
        acceptance=(*state.acceptance, o.acceptance)[-MOST_PHASE_ONE:],
        tokens_per_draft=(state.tokens_per_draft * n + o.draft_tokens / o.drafts) / (n + 1),
        seconds_seen=state.seconds_seen + (o.end - o.start),
    )
    if state.seconds_seen < config.phase_one * 0.999:
        return state
    baseline = learn_baseline(
        state.drafts,
        state.acceptance,
        num_speculative_tokens=state.tokens_per_draft,
        empty_windows=state.empty_windows,
    )
    if baseline is None:
        return state
    return replace(
        state,
        phase=ChartPhase.WATCHING,
        drafts=(),
        acceptance=(),
        baseline=baseline,
        intervals=decision_intervals(baseline, config),
        drop=_fresh(o.end),
        rise=_fresh(o.end),
    )


def _fresh(time: float) -> tuple[Statistic, ...]:
    return tuple(Statistic(since=time) for _ in BANK)


def decision_intervals(baseline: Baseline, config: DetectorConfig) -> tuple[float, ...]:
    """Return h for every drop of the bank.

    The false-alarm budget is split evenly over charts, the bank and both sides; a window without
    traffic cannot raise an alarm, hence the fill.
    """
    windows = config.false_alarm_interval / config.scrape_interval * max(baseline.fill, 1e-3)
    run_length = max(100.0, windows * len(BANK) * 2 * max(1, config.charts))
    intervals = []
    for factor in BANK:
        d = config.smallest_drop * factor * math.sqrt(baseline.mean_information)
        allowance = min(LARGEST_ALLOWANCE, max(d / 2, 0.001))
        intervals.append(
            INTERVAL_FACTOR * d * decision_interval_for(round(allowance, 4), round(run_length, 0))
        )
    return tuple(intervals)


def _watch(
    state: ChartState, o: Observation, information: float, config: DetectorConfig
) -> tuple[ChartState, Signal | None]:
    baseline = state.baseline
    assert baseline is not None
    drop: list[Statistic] = []
    rise: list[Statistic] = []
    fired: tuple[float, Side, Statistic] | None = None
    for i, factor in enumerate(BANK):
        delta = config.smallest_drop * factor
        reference = baseline.guard + delta / 2
        # 4 sigma, but never so few that a very sure chart could not see its own drop: three
        # windows in a row, however steady the class, are enough and one is not.
        limit = max(
            CLIP_SIGMAS / math.sqrt(information),
            reference + state.intervals[i] / (2 * delta * information),
        )
        shortfall = min(limit, max(-limit, baseline.acceptance - o.acceptance))
        for side, sign, old, new in (
            (Side.DROP, 1.0, state.drop[i], drop),
            (Side.RISE, -1.0, state.rise[i], rise),
        ):
            gain = delta * information * (sign * shortfall - reference)
            statistic = _advance(old, gain, information, o, 2 * state.intervals[i])
            new.append(statistic)
            excess = statistic.value / state.intervals[i]
            if excess > 1 and (fired is None or excess > fired[0]):
                fired = (excess, side, statistic)
    state = replace(state, drop=tuple(drop), rise=tuple(rise))
    if fired is None:
        return state, None
    _, side, statistic = fired
    reach = state.changeover_since + DEPLOYED_WINDOWS * config.scrape_interval
    deployed = state.changeover is not None and statistic.since <= reach
    return _raise_alarm(state, o, side, statistic.since, statistic.seen, deployed)


def _advance(
    old: Statistic, gain: float, information: float, o: Observation, cap: float
) -> Statistic:
    value = min(cap, old.value + gain)
    if value <= 0:
        return Statistic(0.0, o.end, Accumulator())
    since = old.since if old.value > 0 else max(old.since, o.start)
    return Statistic(value, since, old.seen.add(information, o.acceptance))


def _raise_alarm(
    state: ChartState,
    o: Observation,
    side: Side,
    change_point: float,
    seen: Accumulator,
    deployed: bool,
) -> tuple[ChartState, Signal]:
    baseline = state.baseline
    assert baseline is not None
    level = seen.mean if seen.mean is not None else o.acceptance
    if deployed:
        change_point = max(change_point, state.changeover_since)
    alarm = ActiveAlarm(side, o.end, change_point, deployed, recovery=Statistic(since=o.end))
    effect, interval = effect_of(baseline, level, seen.information)
    signal = Signal(
        side, o.end, change_point, baseline.acceptance, level, effect, interval, deployed
    )
    state = replace(
        state,
        phase=ChartPhase.ALARMED,
        alarm=alarm,
        changeover=None,
        drop=_fresh(o.end),
        rise=_fresh(o.end),
        drafts=(),
        acceptance=(),
        seconds_seen=0.0,
        empty_windows=0,
    )
    return state, signal


def effect_of(
    baseline: Baseline, level: float, information: float
) -> tuple[float, tuple[float, float]]:
    """Return level - p0 and its 95% interval, both standard errors counted."""
    effect = level - baseline.acceptance
    error = 1.96 * math.sqrt(baseline.standard_error**2 + 1.0 / max(information, 1e-12))
    return effect, (effect - error, effect + error)


def _watch_recovery(
    state: ChartState, o: Observation, information: float, config: DetectorConfig
) -> tuple[ChartState, Signal | None]:
    baseline, alarm = state.baseline, state.alarm
    assert baseline is not None and alarm is not None
    x = o.acceptance
    level = _alarmed_level(alarm, baseline, config.smallest_drop)
    limit = CLIP_SIGMAS / math.sqrt(information)
    middle = 0.5 * (baseline.acceptance + level)
    distance = baseline.acceptance - level
    pull = min(limit, max(-limit, x - middle))
    recovery = _advance(alarm.recovery, information * distance * pull, information, o, math.inf)
    alarm = replace(
        alarm,
        since_alarm=alarm.since_alarm.add(information, x),
        recovery=recovery,
        recent=(*alarm.recent, (information, x))[-RECENT:],
    )
    windows = config.false_alarm_interval / config.scrape_interval
    # exp(h) bounds the run length of a likelihood-ratio CUSUM from below (Lorden 1971).
    enough = math.log(max(100.0, windows * 2 * max(1, config.charts)))
    back = recovery.seen.mean
    if recovery.value <= enough or back is None or not _is_back(alarm, baseline):
        state = replace(state, alarm=alarm)
        return (_learn_anew(state, o, config) if alarm.changed_with_deployment else state), None
    error = 1.96 / math.sqrt(max(recovery.seen.information, 1e-12))
    effect = back - level
    signal = Signal(
        side=Side.RISE if alarm.side is Side.DROP else Side.DROP,
        time=o.end,
        change_point=recovery.since,
        level_before=level,
        level_after=back,
        effect=effect,
        interval=(effect - error, effect + error),
        recovery=True,
    )
    state = replace(
        state,
        phase=ChartPhase.WATCHING,
        alarm=None,
        changeover=None,
        drop=_fresh(o.end),
        rise=_fresh(o.end),
    )
    return state, signal


def _is_back(alarm: ActiveAlarm, baseline: Baseline) -> bool:
    """Tell whether the newest windows are at the baseline, not merely nearer to it."""
    if alarm.recovery.seen.windows < FEWEST_RECOVERED:
        return False
    newest = alarm.recent[-min(alarm.recovery.seen.windows, 2 * FEWEST_RECOVERED) :]
    total = sum(i for i, _ in newest)
    mean = sum(i * x for i, x in newest) / total
    error = math.sqrt(baseline.standard_error**2 + 1.0 / total)
    return abs(mean - baseline.acceptance) <= 1.96 * error + baseline.guard


def _learn_anew(state: ChartState, o: Observation, config: DetectorConfig) -> ChartState:
    """After a change that came with a deployment: a new Phase I beside the standing alarm.

    Only when it is complete does the new level become the baseline, with the old one recorded.
    """
    learned = _learn(replace(state, phase=ChartPhase.ALARMED), o, config)
    if learned.phase is ChartPhase.ALARMED or state.baseline is None:
        return learned
    return replace(learned, alarm=None, previous_level=state.baseline.acceptance)


def _alarmed_level(alarm: ActiveAlarm, baseline: Baseline, smallest: float) -> float:
    """Return the level to tell the baseline from: recent windows, the newest third left out.

    Never nearer to the baseline than the smallest drop, so that noise alone is no return.
    """
    kept = alarm.recent[: max(3, len(alarm.recent) - RECENT // 3)]
    total = sum(i for i, _ in kept)
    sign = -1.0 if alarm.side is Side.DROP else 1.0
    nearest = baseline.acceptance + sign * smallest
    if total <= 0:
        return nearest
    level = sum(i * x for i, x in kept) / total
    return min(level, nearest) if sign < 0 else max(level, nearest)


def current_effect(
    state: ChartState,
) -> tuple[float, float, tuple[float, float]] | None:
    """Return (level, effect, interval) re-estimated on windows after the alarm only.

    The effect at the alarm is biased by selection: expensive actions use this one. None while no
    alarm stands or nothing was seen since.
    """
    if state.alarm is None or state.baseline is None or not state.alarm.recent:
        return None
    total = sum(i for i, _ in state.alarm.recent)
    level = sum(i * x for i, x in state.alarm.recent) / total
    effect, interval = effect_of(state.baseline, level, total)
    return level, effect, interval


def settled(state: ChartState, smallest: float, windows: int = 4) -> bool:
    """Tell whether the level since the alarm has stopped moving.

    Compares the last `windows` windows with those before them: an action chosen in the middle of
    a ramp is chosen for a level that is already gone.
    """
    if state.alarm is None:
        return True
    recent = state.alarm.recent
    if len(recent) < 2 * windows:
        return False
    halves = (recent[-2 * windows : -windows], recent[-windows:])
    information = [sum(i for i, _ in half) for half in halves]
    means = [
        sum(i * x for i, x in half) / total for half, total in zip(halves, information, strict=True)
    ]
    error = math.sqrt(sum(1.0 / total for total in information))
    return abs(means[1] - means[0]) <= max(smallest / 2, 1.5 * error)


def _begin_changeover(state: ChartState, time: float) -> ChartState:
    if state.baseline is None:
        return ChartState(last_time=state.last_time)  # two processes make no baseline
    # Evidence gathered before the restart says nothing about the new process.
    alarm = state.alarm
    if alarm is not None:
        alarm = replace(alarm, recovery=Statistic(since=time))
    return replace(
        state,
        alarm=alarm,
        changeover=Accumulator(),
        changeover_since=time,
        drop=_fresh(time),
        rise=_fresh(time),
    )


def _changeover(
    state: ChartState, o: Observation, information: float, config: DetectorConfig
) -> tuple[ChartState, Signal | None]:
    """Test the mean since the restart against the held baseline (normal-mixture boundary).

    |sum I (x - p0)| >= sqrt((V + r) log((V + r) / (r e^2))) with V = sum I holds at any time with
    probability at most e under no change (Robbins 1970); the baseline's own error and the guard
    are added.
    """
    baseline = state.baseline
    assert baseline is not None and state.changeover is not None
    limit = max(CLIP_SIGMAS / math.sqrt(information), baseline.guard + config.smallest_drop)
    x = min(baseline.acceptance + limit, max(baseline.acceptance - limit, o.acceptance))
    seen = state.changeover.add(information, x)
    state = replace(state, changeover=seen)
    mean = seen.mean
    assert mean is not None
    total = seen.information
    tuned = 10 * baseline.mean_information
    bound = (
        math.sqrt((total + tuned) * math.log((total + tuned) / (tuned * CHANGEOVER_ERROR**2)))
        / total
    )
    allowed = math.hypot(bound, 3.3 * baseline.standard_error) + baseline.guard
    difference = mean - baseline.acceptance
    if seen.windows >= CHANGEOVER_FEWEST and abs(difference) > allowed:
        side = Side.DROP if difference < 0 else Side.RISE
        return _raise_alarm(state, o, side, state.changeover_since, seen, deployed=True)
    if seen.windows >= CHANGEOVER_WINDOWS:
        return replace(state, changeover=None), None
    return state, None
