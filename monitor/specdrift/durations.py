"""Durations as people write them: `500ms`, `5s`, `2m`, `1h30m`, `30d`."""

from __future__ import annotations

import math
import re
from typing import Final

from specdrift.errors import UsageError

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")
_EXAMPLES: Final = "a number with a unit, such as 500ms, 5s, 2m, 1h30m or 30d"


def parse_duration(text: str, *, name: str = "duration") -> float:
    """Return the seconds that `text` names.

    Args:
        text: One or more numbers with a unit (ms, s, m, h, d, w).
        name: The option or field, for the error's sentence.

    Raises:
        UsageError: The text is no duration, or not positive.
    """
    compact = text.strip()
    if not _WHOLE.fullmatch(compact):
        raise UsageError(f"{name} {compact!r} is no duration", hint=_EXAMPLES)
    seconds = math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(compact))
    if not 0 < seconds < math.inf:
        raise UsageError(f"{name} {compact!r} is not longer than nothing", hint=_EXAMPLES)
    return seconds


def format_duration(seconds: float) -> str:
    """Return seconds as a person writes them: at most two units, rounded to the smaller one.

    `parse_duration(format_duration(x))` is x up to that rounding.
    """
    if not math.isfinite(seconds):
        return "forever" if seconds > 0 else "unknown"
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds == 0:
        return "0s"
    if seconds < 0.9995:
        return f"{sign}{seconds * 1000:.3g}ms"
    if seconds < 9.95:
        return f"{sign}{round(seconds, 1):g}s"
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for index, (unit, size) in enumerate(units):
        step = units[index + 1][1] if index + 1 < len(units) else 1
        rounded = round(seconds / step) * step
        if rounded >= size:
            rest = round((rounded % size) / step)
            tail = f"{rest}{units[index + 1][0]}" if rest and index + 1 < len(units) else ""
            return f"{sign}{int(rounded // size)}{unit}{tail}"
    return f"{sign}{round(seconds)}s"
