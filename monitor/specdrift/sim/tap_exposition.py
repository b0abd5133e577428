"""Write the simulated tap's series: what runs inside a real engine publishes the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from specdrift import conventions as c
from specdrift.sim.statistics import Histogram
from specdrift.sim.text import go_float, header, histogram_lines, label_text

if TYPE_CHECKING:
    from specdrift.sim.engine import SimulatedEngine

METHOD_OFF = "off"

_Samples = list[tuple[dict[str, str], float]]


def tap_lines(engine: SimulatedEngine, base: Mapping[str, str]) -> list[str]:
    """Return the lines of all specdrift_tap_* families (engine labels in `base`)."""
    lines: list[str] = []
    for name, text, samples in _counters(engine):
        if samples:
            lines += header(name, "counter", text)
            lines += [
                f"{name}{{{label_text({**base, **own})}}} {go_float(v)}" for own, v in samples
            ]
    for name, text, histograms in _histograms(engine):
        if histograms:
            lines += header(name, "histogram", text)
            for labels, histogram in histograms:
                lines += histogram_lines(name, {**base, **labels}, histogram)
    config = engine.config
    info = {
        **base,
        c.LABEL_METHOD: METHOD_OFF if config is None else config.method or "unknown",
        c.LABEL_NUM_SPECULATIVE_TOKENS: str(engine.num_speculative_tokens),
    }
    lines += header(
        c.TAP_SPEC_CONFIG_INFO, "gauge", "The speculative config in force; always 1 (simulated)."
    )
    lines.append(f"{c.TAP_SPEC_CONFIG_INFO}{{{label_text(info)}}} 1.0")
    return lines


def _counters(engine: SimulatedEngine) -> list[tuple[str, str, _Samples]]:
    statistics, names = engine.statistics, engine.classes
    found: list[tuple[str, str, _Samples]] = []
    if engine.config is not None:
        found += _speculation(engine)
    found.append(
        (
            c.TAP_OUTPUT_TOKENS,
            "Output tokens delivered, by class.",
            [
                ({c.LABEL_CLASS: name}, int(statistics.output_tokens[i]))
                for i, name in enumerate(names)
            ],
        )
    )
    outcomes = {(i, "success"): 0 for i in range(len(names))} | statistics.outcomes
    found.append(
        (
            c.TAP_REQUESTS,
            "Requests that ended, by class and outcome.",
            [
                ({c.LABEL_CLASS: names[i], c.LABEL_OUTCOME: outcome}, count)
                for (i, outcome), count in outcomes.items()
            ],
        )
    )
    for metric, text, by_bucket in (
        (
            c.TAP_REQUEST_STEPS,
            "Request-steps: one per running request and engine step.",
            statistics.request_steps,
        ),
        (
            c.TAP_REQUEST_STEP_SECONDS,
            "Seconds of the steps in which a request ran, summed over requests.",
            statistics.request_step_seconds,
        ),
    ):
        samples: _Samples = []
        for bucket in sorted(by_bucket):
            for i, name in enumerate(names):
                labels = {c.LABEL_CLASS: name, c.LABEL_BATCH_BUCKET: c.BATCH_BUCKETS[bucket]}
                samples.append((labels, float(by_bucket[bucket][i])))
        found.append((metric, text, samples))
    found += _finished(engine)
    return found


def _speculation(engine: SimulatedEngine) -> list[tuple[str, str, _Samples]]:
    statistics, names = engine.statistics, engine.classes
    configured = engine.num_speculative_tokens
    drafts: _Samples = []
    tokens: _Samples = []
    accepted: _Samples = []
    per_position: dict[tuple[int, int], list[int]] = {
        (i, configured): [0] * configured for i in range(len(engine.resolved.classes))
    }
    if not statistics.spec:
        # The classes of the scenario start at zero, so that their first rates are right.
        statistics.spec_counts(configured, 0)
    for (k, bucket), counts in sorted(statistics.spec.items()):
        class_drafts, class_accepted = counts.drafts.tolist(), counts.accepted.tolist()
        positions = counts.per_position.tolist()
        for i, name in enumerate(names):
            labels = {
                c.LABEL_CLASS: name,
                c.LABEL_NUM_SPECULATIVE_TOKENS: str(k),
                c.LABEL_BATCH_BUCKET: c.BATCH_BUCKETS[bucket],
            }
            drafts.append((labels, class_drafts[i]))
            tokens.append((labels, class_drafts[i] * k))
            accepted.append((labels, class_accepted[i]))
            before = per_position.get((i, k), [0] * k)
            per_position[(i, k)] = [a + b for a, b in zip(before, positions[i], strict=True)]
    by_position: _Samples = [
        (
            {
                c.LABEL_CLASS: names[i],
                c.LABEL_NUM_SPECULATIVE_TOKENS: str(k),
                c.LABEL_POSITION: str(position),
            },
            count,
        )
        for (i, k), values in sorted(per_position.items())
        for position, count in enumerate(values)
    ]
    return [
        (c.TAP_DRAFTS, "Drafts verified, by class, K and batch bucket.", drafts),
        (c.TAP_DRAFT_TOKENS, "Draft tokens verified, by class, K and batch bucket.", tokens),
        (c.TAP_ACCEPTED_TOKENS, "Draft tokens accepted, by class, K and batch bucket.", accepted),
        (
            c.TAP_ACCEPTED_PER_POSITION,
            "Draft tokens accepted, by class, K and position.",
            by_position,
        ),
    ]


def _finished(engine: SimulatedEngine) -> list[tuple[str, str, _Samples]]:
    rows = sorted(engine.statistics.finished.items())
    metrics = (
        (c.TAP_FINISHED_REQUESTS, "Requests with drafts that ended.", "requests"),
        (c.TAP_FINISHED_DRAFT_TOKENS, "Sum of their draft tokens D.", "draft_tokens"),
        (c.TAP_FINISHED_ACCEPTED, "Sum of their accepted tokens A.", "accepted"),
        (c.TAP_FINISHED_ACCEPTED_SQUARED, "Sum of A squared.", "accepted_squared"),
        (c.TAP_FINISHED_PRODUCT, "Sum of D times A.", "product"),
        (c.TAP_FINISHED_DRAFT_SQUARED, "Sum of D squared.", "draft_squared"),
    )
    return [
        (
            metric,
            text,
            [
                (
                    {
                        c.LABEL_CLASS: engine.classes[i],
                        c.LABEL_NUM_SPECULATIVE_TOKENS: str(k),
                    },
                    float(getattr(sums, attribute)),
                )
                for (i, k), sums in rows
            ],
        )
        for metric, text, attribute in metrics
    ]


def _histograms(
    engine: SimulatedEngine,
) -> list[tuple[str, str, list[tuple[dict[str, str], Histogram]]]]:
    statistics = engine.statistics
    found = []
    for metric, text, by_key in (
        (c.TAP_TPOT, "Time per output token of a request, seconds.", statistics.tap_per_token),
        (c.TAP_TTFT, "Arrival to first token, seconds.", statistics.tap_first_token),
        (c.TAP_QUEUE, "Arrival to admission, seconds.", statistics.tap_queue),
        (c.TAP_REQUEST_SECONDS, "Arrival to last token, seconds.", statistics.tap_request),
    ):
        rows = [
            (
                {
                    c.LABEL_CLASS: engine.classes[i],
                    c.LABEL_BATCH_BUCKET: c.BATCH_BUCKETS[bucket],
                },
                histogram,
            )
            for (i, bucket), histogram in sorted(by_key.items())
        ]
        found.append((metric, text, rows))
    steps = [
        (
            {
                c.LABEL_BATCH_BUCKET: c.BATCH_BUCKETS[bucket],
                c.LABEL_NUM_SPECULATIVE_TOKENS: str(k),
            },
            histogram,
        )
        for (bucket, k), histogram in sorted(statistics.step_seconds.items())
    ]
    found.append((c.TAP_STEP_SECONDS, "Engine step, seconds, by batch bucket and K.", steps))
    return found
