"""Say whether an engine version would start with a speculative config."""

from __future__ import annotations

from collections.abc import Mapping

from specdrift.core.specconfig import versions
from specdrift.core.specconfig.model import SpecConfig
from specdrift.errors import SpecConfigError

_NEED_K = frozenset({"ngram", "ngram_gpu", "draft_model"})
_NEED_MODEL = frozenset({"draft_model", "eagle", "eagle3", "dflash", "medusa", "custom_class"})


def validate(config: SpecConfig, engine_version: str | None) -> None:
    """Refuse a config with which the engine would not start, or would do something else.

    Args:
        config: The config; "off" is always valid.
        engine_version: As the engine states it, e.g. `0.32.0`; None if unknown: then only the
            keys that every V1 version takes are accepted.

    Raises:
        SpecConfigError: With one sentence that names the key and the version.
    """
    if config.off:
        return
    version = None
    if engine_version is not None:
        version = versions.parse_version(engine_version)
        if version is None:
            raise SpecConfigError(f"cannot read the engine version {engine_version!r}")
    named = "an unknown vLLM version" if engine_version is None else f"vLLM {engine_version}"
    for key in config.settings:
        _check_key(key, version, named)
    _check_method(config, version, named)
    _check_numbers(config.settings)
    _check_schedule(config.settings.get("num_speculative_tokens_per_batch_size"))
    _check_sampling(config.settings.get("rejection_sample_method"), version, named)


def _check_key(key: str, version: versions.Version | None, named: str) -> None:
    if versions.key_accepted(key, version):
        return
    if version is None:
        why = "the engine version is unknown and not every version takes this key"
    else:
        first, last = versions.UNKNOWN_KEYS_IGNORED
        if first <= version < last:
            return  # these versions start and ignore the key
        why = "an unexpected key would crash the engine at start"
    raise SpecConfigError(
        f"speculative config key {key!r} is not accepted by {named}", where=key, why=why
    )


def _check_method(config: SpecConfig, version: versions.Version | None, named: str) -> None:
    written = config.settings.get("method")
    if written is not None and not isinstance(written, str):
        raise SpecConfigError("the speculative method must be a string", where="method")
    method = config.method
    if method is None:
        raise SpecConfigError(
            "the speculative config names neither a method nor a model",
            hint="add a method, or remove the config to turn speculation off",
        )
    if not versions.method_accepted(method, version):
        raise SpecConfigError(
            f"speculative method {method!r} is not known to {named}",
            where="method",
            why="it would crash the engine at start",
        )
    if method in _NEED_K and config.settings.get("num_speculative_tokens") is None:
        raise SpecConfigError(
            f"speculative method {method!r} needs num_speculative_tokens",
            where="num_speculative_tokens",
        )
    if method in _NEED_MODEL and not config.settings.get("model"):
        raise SpecConfigError(f"speculative method {method!r} needs a model", where="model")


def _check_numbers(settings: Mapping[str, object]) -> None:
    for key in ("num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"):
        value = settings.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SpecConfigError(f"{key} must be a whole number above 0, not {value!r}", where=key)
    low, high = settings.get("prompt_lookup_min"), settings.get("prompt_lookup_max")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise SpecConfigError(
            f"prompt_lookup_min ({low}) must not exceed prompt_lookup_max ({high})",
            where="prompt_lookup_min",
        )


def _check_schedule(schedule: object) -> None:
    """Check `[[first, last, k], ...]`: starts at 1, in order, without overlap, k >= 0."""
    if schedule is None:
        return
    where = "num_speculative_tokens_per_batch_size"
    if not isinstance(schedule, list) or not schedule:
        raise SpecConfigError(f"{where} must be a list of [first, last, k]", where=where)
    expected_start = 1
    for row in schedule:
        if (
            not isinstance(row, list)
            or len(row) != 3
            or not all(isinstance(n, int) and not isinstance(n, bool) for n in row)
        ):
            raise SpecConfigError(
                f"{where} must hold rows of three whole numbers [first, last, k]", where=where
            )
        first, last, k = row
        starts_right = first == 1 if expected_start == 1 else first >= expected_start
        if not starts_right or last < first or k < 0:
            raise SpecConfigError(
                f"{where} must start at batch size 1, in order and without overlap",
                where=f"{where} {row}",
            )
        expected_start = last + 1


def _check_sampling(value: object, version: versions.Version | None, named: str) -> None:
    if value is None or version is None:
        return
    for first, allowed in versions.REJECTION_SAMPLE_METHODS:
        if version >= first:
            if value not in allowed:
                raise SpecConfigError(
                    f"rejection_sample_method {value!r} is not known to {named}",
                    where="rejection_sample_method",
                    hint="one of " + ", ".join(sorted(allowed)),
                )
            return
