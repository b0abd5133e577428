"""Which reader a page needs, told by the names on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from specdrift.core.engines import vllm
from specdrift.core.engines.model import EngineCounters, Sample
from specdrift.errors import EngineNotSupported, TargetError


@dataclass(frozen=True, slots=True)
class Reader:
    """One engine's reader.

    Attributes:
        kind: `EngineCounters.engine_kind` of what it returns.
        recognises: Tells whether metric names on a page are this engine's.
        wanted: Tells whether the reader uses a metric of that name.
        read_page: Samples to counters.
    """

    kind: str
    recognises: Callable[[Iterable[str]], bool]
    wanted: Callable[[str], bool]
    read_page: Callable[[Sequence[Sample]], tuple[EngineCounters, ...]]


READERS: Final = (Reader(vllm.KIND, vllm.recognises, vllm.wanted, vllm.read_page),)

# Engines that are recognised, so that the refusal can say what the page is.
_OTHER_ENGINES: Final = (
    ("SGLang", ("sglang:", "sglang_")),
    ("TensorRT-LLM", ("trtllm:", "trtllm_")),
)
_OTHER_PREFIXES: Final = tuple(p for _, prefixes in _OTHER_ENGINES for p in prefixes)


def wanted(name: str) -> bool:
    """Tell whether any reader uses a metric of that name; for `parse_exposition`."""
    return any(reader.wanted(name) for reader in READERS) or name.startswith(_OTHER_PREFIXES)


def read_page(samples: Sequence[Sample], *, where: str = "") -> tuple[EngineCounters, ...]:
    """Return what each engine on a page counts.

    Args:
        samples: The samples of the page, all of them or those that are `wanted`.
        where: The address, for the error's sentence.

    Raises:
        EngineNotSupported: The engine is known, its counters cannot be used.
        TargetError: No engine's metrics are on the page.
    """
    found = dict.fromkeys(sample.name for sample in samples)
    for reader in READERS:
        if reader.recognises(found):
            try:
                engines = reader.read_page(samples)
            except EngineNotSupported as error:
                raise EngineNotSupported(
                    error.what, where=where, why=error.why, hint=error.hint
                ) from error
            if engines:
                return engines
    for engine, prefixes in _OTHER_ENGINES:
        if any(name.startswith(prefixes) for name in found):
            raise EngineNotSupported(
                f"this is a page of {engine}, which cannot be read yet",
                where=where,
                why="this version has a reader for vLLM only",
                hint="a vLLM server",
            )
    raise TargetError(
        "no engine metrics on this page",
        where=where,
        why="it has none of the series an inference server counts with, such as "
        "vllm:generation_tokens_total",
        hint="the inference server's own address (a router or a node exporter has none), and "
        "whether it runs with --disable-log-stats",
    )
