"""The in-engine tap's series on an engine's page: counts by class, K and batch bucket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from specdrift import conventions as c
from specdrift.core.engines.families import (
    Pair,
    build_histogram,
    total,
    usable,
)
from specdrift.core.engines.model import (
    ClassCounters,
    ClassLatency,
    ClassSteps,
    FinishedStatistics,
    Sample,
    SpecCounters,
)

PREFIX: Final = "specdrift_tap_"
HISTOGRAMS: Final = (
    c.TAP_TPOT,
    c.TAP_TTFT,
    c.TAP_QUEUE,
    c.TAP_REQUEST_SECONDS,
    c.TAP_STEP_SECONDS,
)
_FINISHED: Final = (
    c.TAP_FINISHED_REQUESTS,
    c.TAP_FINISHED_DRAFT_TOKENS,
    c.TAP_FINISHED_ACCEPTED,
    c.TAP_FINISHED_ACCEPTED_SQUARED,
    c.TAP_FINISHED_PRODUCT,
    c.TAP_FINISHED_DRAFT_SQUARED,
)
_SPEC: Final = (c.TAP_DRAFTS, c.TAP_DRAFT_TOKENS, c.TAP_ACCEPTED_TOKENS)

_UNKNOWN: Final = "unknown"

Groups = dict[tuple[str, ...], dict[str, list[Sample]]]


@dataclass(frozen=True, slots=True)
class Tapped:
    """What the tap tells about one engine; empty where there is no tap."""

    by_class: tuple[ClassCounters, ...] = ()
    output_tokens: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)
    latency: tuple[ClassLatency, ...] = ()
    steps: tuple[ClassSteps, ...] = ()
    finished: tuple[FinishedStatistics, ...] = ()
    method: str | None = None
    damaged: tuple[str, ...] = ()


def read(samples: Iterable[Sample], pairs: Sequence[Pair]) -> dict[Pair, Tapped]:
    """Return what the tap tells about each of the engines (model name, engine) on the page.

    A series without a model or engine label belongs to the only engine it can belong to; where
    there are several it is left out and named in `damaged` of each.
    """
    mine: dict[Pair, list[Sample]] = {pair: [] for pair in pairs}
    ambiguous: dict[str, None] = {}
    for sample in samples:
        model = sample.labels.get(c.LABEL_MODEL)
        engine = sample.labels.get(c.LABEL_ENGINE)
        fitting = [pair for pair in pairs if model in (None, pair[0]) and engine in (None, pair[1])]
        if len(fitting) == 1:
            mine[fitting[0]].append(sample)
        elif fitting:
            ambiguous[sample.name] = None
    return {pair: _read_one(own, tuple(ambiguous)) for pair, own in mine.items()}


def by_position(samples: Iterable[Sample], label: str) -> tuple[float, ...] | None:
    """Return counts by draft position, or None when they are no gapless 0..K-1 or damaged."""
    counts: dict[int, float] = defaultdict(float)
    for sample in samples:
        position = sample.labels.get(label, "")
        if not position.isdecimal() or not usable(sample.value):
            return None
        counts[int(position)] += sample.value
    if sorted(counts) != list(range(len(counts))):
        return None
    return tuple(counts[position] for position in range(len(counts)))


def _read_one(samples: list[Sample], ambiguous: tuple[str, ...]) -> Tapped:
    if not samples and not ambiguous:
        return Tapped()
    damaged = dict.fromkeys(ambiguous)
    info = [s for s in samples if s.name == c.TAP_SPEC_CONFIG_INFO and s.value > 0]
    method = info[-1].labels.get(c.LABEL_METHOD) if info else None
    return Tapped(
        by_class=_by_class(samples, damaged),
        output_tokens=_class_totals(samples, c.TAP_OUTPUT_TOKENS, damaged),
        requests=_class_totals(samples, c.TAP_REQUESTS, damaged),
        latency=_latency(samples, damaged),
        steps=_steps(samples, damaged),
        finished=_finished(samples, damaged),
        method=None if method in ("", _UNKNOWN) else method,
        damaged=tuple(damaged),
    )


def _group(samples: Iterable[Sample], names: Sequence[str], *labels: str) -> Groups:
    groups: Groups = {}
    for sample in samples:
        if sample.name in names:
            key = tuple(sample.labels.get(label, "") for label in labels)
            groups.setdefault(key, {}).setdefault(sample.name, []).append(sample)
    return groups


def _totals(
    group: dict[str, list[Sample]], names: Sequence[str], damaged: dict[str, None]
) -> list[float] | None:
    """Return the sums of these metrics in a group, or None when one is absent or damaged."""
    values: list[float] = []
    for name in names:
        value, _ = total(group.get(name, ()))
        if value is None:
            damaged[name] = None
            return None
        values.append(value)
    return values


def k_of(label: str) -> int | None:
    """Return the K a label names; `unknown` and everything else that is no number is None."""
    return int(label) if label.isdecimal() else None


def _by_class(samples: list[Sample], damaged: dict[str, None]) -> tuple[ClassCounters, ...]:
    names = (*_SPEC, c.TAP_ACCEPTED_PER_POSITION)
    found: list[ClassCounters] = []
    groups = _group(samples, names, c.LABEL_CLASS, c.LABEL_NUM_SPECULATIVE_TOKENS)
    for (traffic_class, k), group in sorted(groups.items()):
        if not any(name in group for name in _SPEC):
            continue
        sums = _totals(group, _SPEC, damaged)
        if sums is None:
            continue
        positions = by_position(group.get(c.TAP_ACCEPTED_PER_POSITION, ()), c.LABEL_POSITION)
        if positions is None:
            damaged[c.TAP_ACCEPTED_PER_POSITION] = None
        spec = SpecCounters(sums[0], sums[1], sums[2], positions or ())
        found.append(ClassCounters(traffic_class or c.CLASS_DEFAULT, k_of(k), spec))
    return tuple(found)


def _class_totals(samples: list[Sample], name: str, damaged: dict[str, None]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for (traffic_class,), group in sorted(_group(samples, (name,), c.LABEL_CLASS).items()):
        values = _totals(group, (name,), damaged)
        if values is not None:
            sums[traffic_class or c.CLASS_DEFAULT] = values[0]
    return sums


def _steps(samples: list[Sample], damaged: dict[str, None]) -> tuple[ClassSteps, ...]:
    names = (c.TAP_REQUEST_STEPS, c.TAP_REQUEST_STEP_SECONDS)
    found: list[ClassSteps] = []
    groups = _group(samples, names, c.LABEL_CLASS, c.LABEL_BATCH_BUCKET)
    for (traffic_class, bucket), group in sorted(groups.items()):
        values = _totals(group, names, damaged)
        if values is not None:
            found.append(ClassSteps(traffic_class, bucket, values[0], values[1]))
    return tuple(found)


def _finished(samples: list[Sample], damaged: dict[str, None]) -> tuple[FinishedStatistics, ...]:
    found: list[FinishedStatistics] = []
    groups = _group(samples, _FINISHED, c.LABEL_CLASS, c.LABEL_NUM_SPECULATIVE_TOKENS)
    for (traffic_class, k), group in sorted(groups.items()):
        values = _totals(group, _FINISHED, damaged)
        if values is not None:
            found.append(FinishedStatistics(traffic_class or c.CLASS_DEFAULT, k_of(k), *values))
    return tuple(found)


def _latency(samples: list[Sample], damaged: dict[str, None]) -> tuple[ClassLatency, ...]:
    found: list[ClassLatency] = []
    for metric in HISTOGRAMS:
        names = tuple(metric + suffix for suffix in ("_bucket", "_sum", "_count"))
        labels = (c.LABEL_CLASS, c.LABEL_BATCH_BUCKET, c.LABEL_NUM_SPECULATIVE_TOKENS)
        for (traffic_class, bucket, k), group in sorted(_group(samples, names, *labels).items()):
            histogram, _ = build_histogram(*(group.get(name, ()) for name in names))
            if histogram is None:
                damaged[metric] = None
                continue
            found.append(ClassLatency(traffic_class, bucket, metric, histogram, k_of(k)))
    return tuple(found)
