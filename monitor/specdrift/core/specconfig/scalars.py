"""Values on a command line: JSON objects, and the scalars of dotted flags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from specdrift.errors import SpecConfigError, clip

_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def load_object(text: str, flag: str) -> dict[str, object] | None:
    """Read a JSON object; `null` (or an empty object) gives None: off.

    Raises:
        SpecConfigError: The text is no JSON, or no object.
    """
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise SpecConfigError(
            f"the value of {flag} is not valid JSON",
            where=clip(text, 60),
            why=reason,
            hint='quote it for the shell, e.g. \'{"method":"ngram","num_speculative_tokens":4}\'',
        ) from error
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        raise SpecConfigError(f"the value of {flag} must be a JSON object", where=clip(text, 60))
    return value


def gather(pairs: Sequence[tuple[str, str]]) -> dict[str, object]:
    """Merge dotted keys and their texts into one object, as vLLM's parser does.

    `key+` appends to a list; later keys win. Dashes in keys are read as underscores.
    """
    result: dict[str, object] = {}
    for dotted, text in pairs:
        appended = dotted.endswith("+")
        path = dotted.rstrip("+").replace("-", "_").split(".")
        value: object = text.split(",") if appended else parse_scalar(text)
        target = result
        for part in path[:-1]:
            inner = target.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SpecConfigError(
                    f"the dotted key {dotted!r} contradicts an earlier one", where=dotted
                )
            target = inner
        before = target.get(path[-1])
        if isinstance(before, list) and isinstance(value, list):
            value = [*before, *value]
        target[path[-1]] = value
    return result


def parse_scalar(text: str) -> object:
    """Read a dotted flag's value: JSON, else a human number (`1k`, `1K`), else the text itself."""
    try:
        value: object = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        human = _HUMAN.fullmatch(text)
        if human is None:
            return text
        unit = human[2]
        base = 1000 if unit.islower() else 1024
        return int(float(human[1]) * base ** _POWERS[unit.lower()])
    return value


def spread(settings: Mapping[str, object]) -> list[tuple[str, str]] | None:
    """Return settings as dotted keys and texts; None where a key cannot be spelled that way."""
    pairs = []
    for key, value in settings.items():
        if re.fullmatch(r"[A-Za-z0-9_]+", key) is None:
            return None
        plain = isinstance(value, str) and value != "" and not value.startswith("-")
        if plain and parse_scalar(str(value)) == value:
            pairs.append((key, str(value)))
        else:
            pairs.append((key, json.dumps(value, separators=(",", ":"))))
    return pairs
