"""Pieces of the Prometheus text format 0.0.4, written fast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from specdrift.sim.statistics import Histogram


def go_float(value: float) -> str:
    """Return a number as prometheus_client writes it: `5.0`, `1.79e+09`, `+Inf`, `NaN`."""
    number = float(value)
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if math.isnan(number):
        return "NaN"
    text = repr(number)
    dot = text.find(".")
    if number > 0 and dot > 6:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+0{dot - 1}"
    return text


def escape(value: str) -> str:
    """Return a label value with backslash, quote and newline escaped."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def label_text(labels: Mapping[str, str]) -> str:
    """Return `a="1",b="2"`, sorted by name, without braces."""
    return ",".join(f'{name}="{escape(labels[name])}"' for name in sorted(labels))


def header(name: str, kind: str, text: str) -> list[str]:
    """Return the HELP and TYPE lines of a family."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


@lru_cache(maxsize=1024)
def _bucket_prefixes(
    name: str, labels: tuple[tuple[str, str], ...], bounds: Sequence[float]
) -> list[str]:
    prefixes = []
    for bound in [*bounds, math.inf]:
        text = label_text({**dict(labels), "le": go_float(bound)})
        prefixes.append(f"{name}_bucket{{{text}}} ")
    return prefixes


def histogram_lines(name: str, labels: Mapping[str, str], histogram: Histogram) -> list[str]:
    """Return the bucket, count and sum lines of one histogram series."""
    key = tuple(sorted(labels.items()))
    prefixes = _bucket_prefixes(name, key, histogram.bounds)
    lines = [
        f"{prefix}{go_float(count)}"
        for prefix, count in zip(prefixes, accumulate(histogram.counts), strict=True)
    ]
    braces = f"{{{label_text(labels)}}}" if labels else ""
    lines.append(f"{name}_count{braces} {go_float(histogram.count)}")
    lines.append(f"{name}_sum{braces} {go_float(histogram.total)}")
    return lines
