"""Points cut into stretches: by rung in force, by batch bucket, before and after a change."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import words
from answers import Alarm, Decision, Point
from specdrift import conventions as names

# Windows after a change that are left out: cold caches, graph capture, the drain of old requests.
WARM_UP = 4
GOOD = ("ok", "speculation_off")
FAR = float("inf")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time with one rung in force."""

    rung: str
    start: float
    end: float


def rung_spans(points: Sequence[Point]) -> tuple[Span, ...]:
    """Return who was in force when, oldest first, without holes."""
    spans: list[Span] = []
    for point in points:
        if spans and spans[-1].rung == point.rung:
            spans[-1] = Span(point.rung, spans[-1].start, point.time)
        else:
            if spans:
                spans[-1] = Span(spans[-1].rung, spans[-1].start, point.time)
            spans.append(Span(point.rung, point.time, point.time))
    return tuple(spans)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A change to look at: the windows before it and those after it.

    Attributes:
        before, after: (start, end) in unix seconds; a point belongs to one if start < t <= end.
    """

    label: str
    before: tuple[float, float]
    after: tuple[float, float]
    before_name: str
    after_name: str
    note: str
    kind: str = "alarm"


def comparisons(
    points: Sequence[Point],
    alarms: Sequence[Alarm],
    decisions: Sequence[Decision],
    at: Callable[[float | None], str],
) -> tuple[Comparison, ...]:
    """Return what can be compared, newest first: changes of rung, and alarms."""
    spans = rung_spans(points)
    found: list[tuple[float, Comparison]] = []
    for was, now in pairwise(spans):
        onset = max((a.time for a in alarms if was.start < a.time <= now.start), default=was.start)
        decision = _deciding(decisions, now)
        verb = words.KINDS.get(decision.kind, decision.kind) if decision else "changed"
        label = f"{at(now.start)}  {verb}: {words.rung(was.rung)} → {words.rung(now.rung)}"
        note = f"{WARM_UP} windows of warm-up are left out."
        if onset > was.start:
            note = (
                "Before: windows since the alarm only, so that chance that raised the alarm "
                "does not flatter the change. " + note
            )
        found.append(
            (
                now.start,
                Comparison(
                    label,
                    (onset, now.start - 1e-6),
                    (_warm(points, now), now.end),
                    words.rung(was.rung),
                    words.rung(now.rung),
                    note,
                    decision.kind if decision else "changed",
                ),
            )
        )
    for alarm in alarms:
        if alarm.recovery or alarm.change_point is None:
            continue
        inside = [s for s in spans if s.start <= alarm.time <= s.end]
        start = inside[0].start if inside else -FAR
        end = inside[-1].end if inside else FAR
        label = f"{at(alarm.time)}  alarm: class {alarm.traffic_class} {words.moved(alarm.side)}"
        note = "Before the change point, and from it to the next change of configuration."
        found.append(
            (
                alarm.time,
                Comparison(
                    label,
                    (start, alarm.change_point),
                    (alarm.change_point, end),
                    "before the drift",
                    "after it",
                    note,
                ),
            )
        )
    return tuple(c for _, c in sorted(found, key=lambda f: f[0], reverse=True))


def _deciding(decisions: Sequence[Decision], span: Span) -> Decision | None:
    """Return the decision that brought a rung: the newest one that names it before it shows."""
    near = [d for d in decisions if d.rung and 0 <= span.start - d.time + 1 < 60]
    return max(near, key=lambda d: d.time, default=None)


def _warm(points: Sequence[Point], span: Span) -> float:
    good = [p.time for p in points if span.start <= p.time <= span.end and p.state in GOOD]
    if not good:
        return span.end
    return good[min(WARM_UP, len(good)) - 1]


@dataclass(frozen=True, slots=True)
class BucketRow:
    """Latency of the windows of one batch bucket; seconds, None where no window told."""

    windows: int
    tpot_p50: float | None
    tpot_p99: float | None
    ttft_p50: float | None
    ttft_p99: float | None


def by_bucket(points: Iterable[Point], start: float, end: float) -> dict[str, BucketRow]:
    """Return medians over the windows in (start, end], per batch bucket in its usual order."""
    inside: dict[str, list[Point]] = {}
    for p in points:
        if start < p.time <= end and p.state in GOOD and p.bucket and p.tpot_p50 is not None:
            inside.setdefault(p.bucket, []).append(p)
    usual = {bucket: i for i, bucket in enumerate(names.BATCH_BUCKETS)}
    return {
        bucket: BucketRow(
            len(inside[bucket]),
            _median(p.tpot_p50 for p in inside[bucket]),
            _median(p.tpot_p99 for p in inside[bucket]),
            _median(p.ttft_p50 for p in inside[bucket]),
            _median(p.ttft_p99 for p in inside[bucket]),
        )
        for bucket in sorted(inside, key=lambda b: (usual.get(b, len(usual)), b))
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def change(before: float | None, after: float | None) -> str:
    """Return how much a latency changed, in words that need no colour."""
    if before is None or after is None or before <= 0:
        return "not comparable"
    part = after / before - 1
    if abs(part) < 0.005:
        return "unchanged"
    return f"{abs(part):.0%} {'slower' if part > 0 else 'faster'}"


def thin(points: Sequence[Point], most: int) -> tuple[tuple[Point, ...], int]:
    """Return at most about `most` points and the step; turns of state and rung are kept."""
    step = max(1, -(-len(points) // most))
    if step == 1:
        return tuple(points), 1
    kept = []
    for i, point in enumerate(points):
        turn = i > 0 and (point.state, point.rung) != (points[i - 1].state, points[i - 1].rung)
        if i % step == 0 or turn or i == len(points) - 1:
            kept.append(point)
    return tuple(kept), step
