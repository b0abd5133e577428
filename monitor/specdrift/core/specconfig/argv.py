"""Read and write the speculative config on vLLM's command line, in the spelling found.

Spellings (measured on vLLM's own parser):

    --speculative-config JSON   --speculative_config=JSON   -sc JSON   --speculative JSON
    --speculative-config.method ngram   -sc.num_speculative_tokens=3
    --spec-method NAME   --spec-model NAME   --spec-tokens N

Of repeated flags the last wins. Dotted flags are gathered into one JSON value that is appended at
the end: they replace a JSON value wholesale, wherever they stand. `--spec-*` flags are merged
into the JSON value; the same key in both is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdrift.core.specconfig import scalars
from specdrift.core.specconfig.model import SpecConfig
from specdrift.errors import SpecConfigError

FLAG = "--speculative-config"
SHORT_FLAG = "-sc"
SPEC_FLAGS = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
PER_REQUEST_FLAG = "--per-request-spec-decode-metrics"
_PER_REQUEST_SHORTEST = "--per-request-s"

JSON_KIND = "json"
DOTTED_KIND = "dotted"
SPEC_FLAG_KIND = "spec-flags"


@dataclass(frozen=True)
class Spelling:
    """One place on the command line that says something about speculation.

    Args:
        kind: `json`, `dotted` or `spec-flags`.
        flag: The flag as typed, without the dotted key, e.g. `--speculative_config` or `-sc`.
        key: The key for dotted (`a.b` where nested) and `--spec-*` flags, else empty.
        equals: Whether the value follows an equals sign in the same element.
        start: Index of the first element in argv.
        length: Number of elements, 1 or 2.
        value: The value as text.
    """

    kind: str
    flag: str
    key: str
    equals: bool
    start: int
    length: int
    value: str


@dataclass(frozen=True)
class FoundConfig:
    """What a command line says about speculation.

    Args:
        config: The config the engine would use; None is off.
        spellings: Every place that mentions it, in order; empty if nothing does.
    """

    config: SpecConfig | None
    spellings: tuple[Spelling, ...]

    @property
    def present(self) -> bool:
        """Return whether the command line mentions speculation at all (`null` does too)."""
        return bool(self.spellings)


def read_argv(argv: Sequence[str]) -> FoundConfig:
    """Read the speculative config that a vLLM command line asks for.

    Raises:
        SpecConfigError: Broken JSON, a flag without a value, an ambiguous abbreviation, or the
            same key given in two contradictory ways.
    """
    found = tuple(_scan(argv))
    dotted = _effective_dotted(found)
    json_places = [place for place in found if place.kind == JSON_KIND]
    settings: dict[str, object] | None = None
    if dotted:
        settings = scalars.gather([(place.key, place.value) for place in dotted])
    elif json_places:
        settings = scalars.load_object(json_places[-1].value, json_places[-1].flag)
    named: dict[str, object] = {}
    for place in found:
        if place.kind == SPEC_FLAG_KIND:
            named[place.key] = _flag_value(place)
    for key in named:
        if settings is not None and settings.get(key) is not None:
            flag = next(name for name, target in SPEC_FLAGS.items() if target == key)
            raise SpecConfigError(
                f"{flag} and the key {key!r} in {FLAG} are mutually exclusive",
                where=flag,
                hint="give it in one place only",
            )
    if named:
        settings = {**(settings or {}), **named}
    return FoundConfig(SpecConfig(settings) if settings else None, found)


def write_argv(argv: Sequence[str], config: SpecConfig | None) -> list[str]:
    """Return `argv` with the speculative config replaced, in the spelling found.

    Everything else stays as it is and in order. None (or an empty config) turns speculation off:
    every spelling goes, and `--per-request-spec-decode-metrics` with it, because vLLM refuses to
    start with that flag alone. Without a spelling to follow, `--speculative-config JSON` is added
    at the end.

    Raises:
        SpecConfigError: What stands on the command line cannot be read.
    """
    found = read_argv(argv)
    removed = {
        i for place in found.spellings for i in range(place.start, place.start + place.length)
    }
    if config is None or config.off:
        removed |= _per_request_elements(argv)
        return [element for i, element in enumerate(argv) if i not in removed]
    if not found.present:
        return [*argv, FLAG, config.to_json()]
    place = _leading(found.spellings)
    replacement = _spell(place, config)
    result: list[str] = []
    for i, element in enumerate(argv):
        if i == place.start:
            result.extend(replacement)
        if i not in removed:
            result.append(element)
    return result


def _leading(found: tuple[Spelling, ...]) -> Spelling:
    """Return the place whose spelling is followed: dotted, else the last JSON, else --spec-*."""
    dotted = _effective_dotted(found)
    if dotted:
        return dotted[0]
    json_places = [place for place in found if place.kind == JSON_KIND]
    return json_places[-1] if json_places else found[0]


def _effective_dotted(found: tuple[Spelling, ...]) -> list[Spelling]:
    """Return the dotted flags that count: of several flag names, the group that began last."""
    groups: dict[str, list[Spelling]] = {}
    for place in found:
        if place.kind == DOTTED_KIND:
            groups.setdefault(_normal(place.flag), []).append(place)
    return list(groups.values())[-1] if groups else []


def _spell(place: Spelling, config: SpecConfig) -> list[str]:
    if place.kind == SPEC_FLAG_KIND:
        pairs = _as_spec_flags(config, underscores="_" in place.flag)
        if pairs is None:
            return [FLAG, config.to_json()]
        return _join(pairs, place.equals)
    if place.kind == DOTTED_KIND:
        texts = scalars.spread(config.settings)
        if texts is not None:
            return _join([(f"{place.flag}.{key}", text) for key, text in texts], place.equals)
    return _join([(place.flag, config.to_json())], place.equals)


def _as_spec_flags(config: SpecConfig, *, underscores: bool) -> list[tuple[str, str]] | None:
    """Return the config as `--spec-*` flags, or None where they cannot carry it."""
    if not set(config.settings) <= set(SPEC_FLAGS.values()):
        return None
    pairs = []
    for flag, key in SPEC_FLAGS.items():
        if key not in config.settings:
            continue
        value = config.settings[key]
        wanted = int if key == "num_speculative_tokens" else str
        if type(value) is not wanted or str(value).startswith("-") or str(value) == "":
            return None
        pairs.append(
            (flag.replace("-", "_").replace("__", "--", 1) if underscores else flag, str(value))
        )
    return pairs


def _join(pairs: list[tuple[str, str]], equals: bool) -> list[str]:
    if equals:
        return [f"{flag}={value}" for flag, value in pairs]
    return [element for pair in pairs for element in pair]


def _flag_value(place: Spelling) -> object:
    if place.key != "num_speculative_tokens":
        return place.value
    try:
        return int(place.value)
    except ValueError as error:
        raise SpecConfigError(
            f"{place.flag} must be a whole number, not {place.value!r}", where=place.flag
        ) from error


def _scan(argv: Sequence[str]) -> list[Spelling]:
    found: list[Spelling] = []
    i = 0
    while i < len(argv):
        place = _place(argv, i)
        if place is None:
            i += 1
        else:
            found.append(place)
            i += place.length
    return found


def _place(argv: Sequence[str], i: int) -> Spelling | None:
    head, equals, tail = argv[i].partition("=")
    flag, dot, key = head.partition(".")
    target = _target(flag)
    if target is None:
        return None
    if not equals and i + 1 >= len(argv):
        raise SpecConfigError(f"{head} has no value", where=head)
    value = tail if equals else argv[i + 1]
    length = 1 if equals else 2
    if dot:
        if target != FLAG or not all(key.split(".")):
            raise SpecConfigError(f"cannot read the flag {head}", where=head)
        return Spelling(DOTTED_KIND, flag, key, bool(equals), i, length, value)
    if target == FLAG:
        return Spelling(JSON_KIND, flag, "", bool(equals), i, length, value)
    return Spelling(SPEC_FLAG_KIND, flag, SPEC_FLAGS[target], bool(equals), i, length, value)


def _target(flag: str) -> str | None:
    """Return the full flag that `flag` stands for, abbreviations included; None if another's."""
    if flag == SHORT_FLAG:
        return FLAG
    name = _normal(flag)
    if not name.startswith("--spec"):
        return None
    candidates = [full for full in (FLAG, *SPEC_FLAGS) if full.startswith(name)]
    if len(candidates) > 1:
        raise SpecConfigError(
            f"ambiguous option {flag}: could match " + ", ".join(candidates), where=flag
        )
    return candidates[0] if candidates else None


def _normal(flag: str) -> str:
    return flag.replace("_", "-")


def _per_request_elements(argv: Sequence[str]) -> set[int]:
    """Return the indices of `--per-request-spec-decode-metrics` and of its values."""
    indices: set[int] = set()
    for i, element in enumerate(argv):
        head, equals, _ = element.partition("=")
        name = _normal(head)
        if name.startswith(_PER_REQUEST_SHORTEST) and PER_REQUEST_FLAG.startswith(name):
            indices.add(i)
            if not equals and i + 1 < len(argv):
                indices.add(i + 1)
    return indices
