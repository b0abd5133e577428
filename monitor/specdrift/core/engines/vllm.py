"""vLLM's V1 metrics page -> EngineCounters, one per (model_name, engine) pair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from specdrift.conventions import LABEL_ENGINE, LABEL_MODEL, LABEL_POSITION
from specdrift.core.engines import names, tap
from specdrift.core.engines.families import Pages, group_by_pair, read_histogram, total
from specdrift.core.engines.model import EngineCounters, Histogram, Sample, SpecCounters
from specdrift.errors import EngineNotSupported

KIND: Final = "vllm"
_RAY: Final = ("ray_vllm:", "ray_vllm_")
_PREFIXES: Final = ("vllm:", *_RAY)
_SUFFIXES: Final = ("_bucket", "_sum", "_count")

_HISTOGRAM_NAMES: Final = frozenset(
    [names.STEPS, *(name for row in names.HISTOGRAMS for name in row.names)]
)
_PLAIN_NAMES: Final = frozenset(
    [
        names.SPEC_DRAFTS,
        names.SPEC_DRAFT_TOKENS,
        names.SPEC_ACCEPTED,
        names.SPEC_PER_POSITION,
        names.CREATED,
        *names.V0_ONLY,
        *(name for row in (*names.COUNTERS, *names.GAUGES) for name in row.names),
    ]
)
_KNOWN: Final = _PLAIN_NAMES | {name + suffix for name in _HISTOGRAM_NAMES for suffix in _SUFFIXES}

_COUNTING: Final = frozenset(
    [*names.COUNTERS[0].names, names.SPEC_DRAFTS, names.SPEC_DRAFT_TOKENS, names.SPEC_ACCEPTED]
)


def canonical(name: str) -> str:
    """Return a name as the tables of `names` spell it: `vllm:` in front, no `_total` behind."""
    for ray in _RAY:
        if name.startswith(ray):
            name = "vllm:" + name[len(ray) :]
            break
    if name.endswith("_total") and name not in _HISTOGRAM_NAMES:
        return name[: -len("_total")]
    return name


def wanted(name: str) -> bool:
    """Tell whether this reader wants the series of that name, as spelled on the page."""
    if name.startswith(_PREFIXES):
        return canonical(name) in _KNOWN
    return name == names.PROCESS_START or name.startswith(tap.PREFIX)


def recognises(metric_names: Iterable[str]) -> bool:
    """Tell whether any of these names is vLLM's."""
    return any(name.startswith(_PREFIXES) for name in metric_names)


def read_page(samples: Sequence[Sample]) -> tuple[EngineCounters, ...]:
    """Return what each engine on a vLLM page counts.

    Raises:
        EngineNotSupported: The page is of the V0 engine.
    """
    start: float | None = None
    engine_samples: list[Sample] = []
    tap_samples: list[Sample] = []
    for sample in samples:
        if sample.name.startswith(tap.PREFIX):
            tap_samples.append(sample)
        elif sample.name == names.PROCESS_START:
            start = sample.value if math.isfinite(sample.value) and sample.value > 0 else None
        elif sample.name.startswith(_PREFIXES):
            name = canonical(sample.name)
            if name in _KNOWN:
                engine_samples.append(Sample(name, sample.labels, sample.value))
    _refuse_v0(engine_samples)
    # A router exports some of vLLM's gauges too; what counts no tokens is no engine.
    pages = {
        pair: families
        for pair, families in group_by_pair(engine_samples, LABEL_MODEL, LABEL_ENGINE).items()
        if not _COUNTING.isdisjoint(families)
    }
    taps = tap.read(tap_samples, tuple(pages))
    return tuple(
        _read_engine(pair, families, start, taps[pair]) for pair, families in pages.items()
    )


def _refuse_v0(samples: Iterable[Sample]) -> None:
    found = sorted({sample.name for sample in samples} & set(names.V0_ONLY))
    if found:
        raise EngineNotSupported(
            "this vLLM runs its V0 engine",
            why=f"it exports {found[0]}, and V0 adds running totals to its speculative counters "
            "again and again, so no acceptance rate can be had from them",
            hint="vLLM 0.9.2 or later with the V1 engine (VLLM_USE_V1=1)",
        )


def _read_engine(
    pair: tuple[str, str], families: Pages, start: float | None, tapped: tap.Tapped
) -> EngineCounters:
    missing: list[str] = []
    damaged: list[str] = []
    values: dict[str, float | None] = {
        row.fact: _first_total(families, row, missing, damaged)
        for row in (*names.COUNTERS, *names.GAUGES)
    }
    if values["kv_cache_usage"] is not None:
        values["kv_cache_usage"] /= _series(families, _present(families, names.GAUGES[-1]))
    histograms: dict[str, Histogram | None] = {
        row.fact: _first_histogram(families, row, missing, damaged) for row in names.HISTOGRAMS
    }
    steps = _histogram_count(families, names.STEPS, missing, damaged)
    spec = _read_spec(families, missing, damaged)
    step, first = histograms["step_seconds"], histograms["time_to_first_token"]
    if start is None:
        start, _ = total(families.get(names.CREATED, ()))
    return EngineCounters(
        engine_kind=KIND,
        model_name=pair[0],
        engine=pair[1],
        process_start=start,
        spec=spec,
        generation_tokens=values["generation_tokens"],
        prompt_tokens=values["prompt_tokens"],
        requests_finished=values["requests_finished"],
        first_tokens=first.count if first else None,
        steps=steps,
        request_steps=step.count if step else None,
        request_step_seconds=step.sum if step else None,
        running=values["running"],
        waiting=values["waiting"],
        kv_cache_usage=values["kv_cache_usage"],
        time_per_output_token=histograms["time_per_output_token"],
        time_to_first_token=first,
        queue_time=histograms["queue_time"],
        request_seconds=histograms["request_seconds"],
        step_seconds=step,
        by_class=tapped.by_class,
        class_output_tokens=tapped.output_tokens,
        class_latency=tapped.latency,
        class_steps=tapped.steps,
        class_finished=tapped.finished,
        class_requests=tapped.requests,
        method=tapped.method,
        missing=tuple(dict.fromkeys((*missing, *damaged, *tapped.damaged))),
        damaged=tuple(dict.fromkeys((*damaged, *tapped.damaged))),
    )


def _present(families: Pages, row: names.Spelling) -> str:
    """Return the first of the row's names that is on the page, or the newest one."""
    for name in row.names:
        if name in families or name + "_count" in families or name + "_bucket" in families:
            return name
    return row.names[0]


def _series(families: Pages, name: str) -> int:
    return max(1, len(families.get(name, ())))


def _first_total(
    families: Pages, row: names.Spelling, missing: list[str], damaged: list[str]
) -> float | None:
    name = _present(families, row)
    return _counter(families, name, missing, damaged)


def _counter(families: Pages, name: str, missing: list[str], damaged: list[str]) -> float | None:
    samples = families.get(name, ())
    value, broken = total(samples)
    if broken:
        damaged.append(name)
    elif value is None:
        missing.append(name)
    return value


def _first_histogram(
    families: Pages, row: names.Spelling, missing: list[str], damaged: list[str]
) -> Histogram | None:
    name = _present(families, row)
    histogram, broken = read_histogram(families, name)
    if broken:
        damaged.append(name)
    elif histogram is None:
        missing.append(name)
    return histogram


def _histogram_count(
    families: Pages, name: str, missing: list[str], damaged: list[str]
) -> float | None:
    value, broken = total(families.get(name + "_count", ()))
    if broken:
        damaged.append(name)
    elif value is None:
        missing.append(name)
    return value


def _read_spec(families: Pages, missing: list[str], damaged: list[str]) -> SpecCounters | None:
    """Return the speculative counters; None without a mention in `damaged` is speculation off."""
    core = (names.SPEC_DRAFTS, names.SPEC_DRAFT_TOKENS, names.SPEC_ACCEPTED)
    if not any(name in families for name in (*core, names.SPEC_PER_POSITION)):
        return None
    absent: list[str] = []
    drafts, draft_tokens, accepted = (_counter(families, name, absent, damaged) for name in core)
    # Part of the set without the rest is no sign that speculation is off.
    damaged.extend(absent)
    positions = _read_positions(families, missing, damaged)
    if drafts is None or draft_tokens is None or accepted is None:
        return None
    return SpecCounters(drafts, draft_tokens, accepted, positions)


def _read_positions(families: Pages, missing: list[str], damaged: list[str]) -> tuple[float, ...]:
    samples = families.get(names.SPEC_PER_POSITION, ())
    if not samples:
        missing.append(names.SPEC_PER_POSITION)
        return ()
    positions = tap.by_position(samples, LABEL_POSITION)
    if positions is None:
        damaged.append(names.SPEC_PER_POSITION)
        return ()
    return positions
