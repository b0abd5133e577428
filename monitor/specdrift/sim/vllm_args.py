"""The part of vLLM's command line that a simulated engine obeys; the rest is ignored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdrift.core.specconfig import SpecConfig, read_argv
from specdrift.core.specconfig.argv import PER_REQUEST_FLAG
from specdrift.errors import SpecConfigError, UsageError

_PER_REQUEST_CHOICES = ("none", "summary", "detailed")


@dataclass(frozen=True)
class VllmArguments:
    """What the command line of a vLLM server says, as far as it is simulated.

    Args:
        config: The speculative config; None is off.
        model_name: First served model name, else the model, else None.
        max_num_seqs: Most running requests; None leaves it to the scenario.
        per_request_speculation: `none`, `summary` or `detailed`.
        per_request_metrics: Whether answers carry latencies.
        force_include_usage: Whether every stream ends with usage.
    """

    config: SpecConfig | None
    model_name: str | None
    max_num_seqs: int | None
    per_request_speculation: str
    per_request_metrics: bool
    force_include_usage: bool


def parse_vllm_arguments(argv: Sequence[str]) -> VllmArguments:
    """Read vLLM's arguments; unknown ones are ignored.

    Raises:
        SpecConfigError: The speculative config cannot be read, or per-request speculation
            metrics are asked for without speculation, with which vLLM does not start.
        UsageError: Another value cannot be read.
    """
    config = read_argv(argv).config
    per_request = _value(argv, PER_REQUEST_FLAG) or "none"
    if per_request not in _PER_REQUEST_CHOICES:
        raise UsageError(
            f"{PER_REQUEST_FLAG} must be one of {', '.join(_PER_REQUEST_CHOICES)}",
            where=per_request,
        )
    if per_request != "none" and config is None:
        raise SpecConfigError(
            f"{PER_REQUEST_FLAG} needs a speculative config",
            why="vLLM refuses to start with it when speculation is off",
            hint=f"remove {PER_REQUEST_FLAG}, or give a --speculative-config",
        )
    seqs = _value(argv, "--max-num-seqs")
    if seqs is not None and not (seqs.isdigit() and int(seqs) > 0):
        raise UsageError("--max-num-seqs must be a whole number above 0", where=seqs)
    return VllmArguments(
        config=config,
        model_name=_value(argv, "--served-model-name") or _model(argv),
        max_num_seqs=None if seqs is None else min(int(seqs), 1024),
        per_request_speculation=per_request,
        per_request_metrics=_given(argv, "--enable-per-request-metrics"),
        force_include_usage=_given(argv, "--enable-force-include-usage"),
    )


def _value(argv: Sequence[str], flag: str) -> str | None:
    """Return the last value of a flag, after a space or an equals sign."""
    found = None
    for i, element in enumerate(argv):
        head, equals, tail = element.partition("=")
        if not head.startswith("--") or head.replace("_", "-") != flag:
            continue
        if equals:
            found = tail
        elif i + 1 < len(argv):
            found = argv[i + 1]
    return found


def _model(argv: Sequence[str]) -> str | None:
    """Return the model of `--model M`, `serve M` or a leading positional."""
    model = _value(argv, "--model")
    if model is not None:
        return model
    for i, element in enumerate(argv[:-1]):
        if element == "serve" and not argv[i + 1].startswith("-"):
            return argv[i + 1]
    return None


def _given(argv: Sequence[str], flag: str) -> bool:
    return any(element.replace("_", "-") == flag for element in argv)
