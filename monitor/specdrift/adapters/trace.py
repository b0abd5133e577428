"""Recorded traffic on disk: expositions over time, request logs and label files.

Each is JSON lines (plain or gzip, told by content, not by name). The request logs and label files
of different recorders differ in shape; they come out as the types of `core.records`.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final, cast

from specdrift.conventions import CLASS_DEFAULT
from specdrift.core.records import ClassShare, Labels, Phase, RequestRecord, RequestSpec
from specdrift.errors import TraceError, clip

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"
# Phases of one recording follow each other; a longer pause than this is an engine that was away.
_RESTART_GAP_SECONDS: Final = 5.0
_FORMAT: Final = "a recording with one JSON object a line: t, and exposition or error"


@dataclass(frozen=True, slots=True)
class TraceScrape:
    """One scrape of a recording: unix time, and the page or the reason there is none."""

    t: float
    exposition: str | None
    error: str | None = None


def read_trace(path: str | Path) -> Iterator[TraceScrape]:
    """Return the scrapes of a recording, in order of time.

    The file is opened at once; its lines are read as the scrapes are asked for.

    Raises:
        TraceError: There is no such file, it is empty or cut off, a line is no scrape, or time
            goes backwards. Names the line.
    """
    return _scrapes(Path(path), _open(Path(path), "trace"))


def _scrapes(path: Path, stream: IO[bytes]) -> Iterator[TraceScrape]:
    previous = -math.inf
    for number, record in _records(path, stream, "trace", _FORMAT):
        t = _number(record, "t", path, number, "trace")
        if t < previous:
            raise TraceError(
                "the trace's time goes backwards",
                where=f"{path}, line {number}",
                why=f"t is {t:.3f} after {previous:.3f}",
                hint="sorting the lines by t, if two recordings were put together",
            )
        previous = t
        exposition, error = record.get("exposition"), record.get("error")
        if isinstance(exposition, str):
            yield TraceScrape(t, exposition)
        elif error is not None and exposition is None:
            yield TraceScrape(t, None, clip(str(error)))
        else:
            raise _bad_line(path, number, "trace", "has neither exposition nor error", _FORMAT)


def read_requests(path: str | Path) -> list[RequestRecord]:
    """Return the requests of a request log, ordered by their start.

    Raises:
        TraceError: There is no such file, it is empty or cut off, or a line is no request.
    """
    where = Path(path)
    stream = _open(where, "request log")
    requests = [
        _request(record, where, number)
        for number, record in _records(where, stream, "request log", _REQUEST_FORMAT)
    ]
    return sorted(requests, key=lambda request: request.start)


_REQUEST_FORMAT: Final = "a request log with one JSON object a line: start, end, traffic_class"


def _request(record: dict[str, Any], path: Path, number: int) -> RequestRecord:
    start = _number(record, "start", path, number, "request log")
    end = _number(record, "end", path, number, "request log")
    if end < start:
        why = f"ends ({end:.3f}) before it starts ({start:.3f})"
        raise _bad_line(path, number, "request log", why, _REQUEST_FORMAT)
    usage = _mapping(record.get("usage"))
    ttft = _optional(record.get("ttft_seconds"))
    try:
        return RequestRecord(
            start=start,
            end=end,
            traffic_class=str(record.get("traffic_class") or CLASS_DEFAULT),
            ttft_seconds=ttft,
            prompt_tokens=_count(record.get("prompt_tokens", usage.get("prompt_tokens"))),
            output_tokens=_count(record.get("output_tokens", usage.get("completion_tokens"))),
            chunks=_chunks(record, ttft),
            spec=_spec(_mapping(_mapping(record.get("metrics")).get("speculative_decoding"))),
            status=_count(record.get("status")),
        )
    except (TypeError, ValueError) as error:
        raise _bad_line(path, number, "request log", str(error), _REQUEST_FORMAT) from error


def _chunks(record: dict[str, Any], ttft: float | None) -> tuple[tuple[float, int | None], ...]:
    """Return chunk times and sizes; gaps between chunks count from the first token."""
    chunks = record.get("chunks")
    if chunks:
        return tuple((float(seconds), int(tokens)) for seconds, tokens in chunks)
    gaps = record.get("chunk_gaps_seconds")
    if not gaps or ttft is None:
        return ()
    times = [ttft]
    for gap in gaps:
        times.append(times[-1] + float(gap))
    return tuple((seconds, None) for seconds in times)


def _spec(counts: dict[str, Any]) -> RequestSpec | None:
    drafts = _optional(counts.get("num_spec_steps"))
    draft_tokens = _optional(counts.get("num_draft_tokens"))
    accepted = _optional(counts.get("num_accepted_draft_tokens"))
    if drafts is None or draft_tokens is None or accepted is None:
        return None
    return RequestSpec(
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted,
        num_speculative_tokens=_count(counts.get("num_spec_tokens")),
        per_step_accepted=tuple(int(n) for n in counts.get("per_step_accepted") or ()),
        per_step_drafted=tuple(int(n) for n in counts.get("per_step_drafted") or ()),
    )


def read_labels(path: str | Path) -> Labels:
    """Return what was done when in a recording.

    Raises:
        TraceError: There is no such file, it is no JSON object, or has no times.
    """
    where = Path(path)
    with _open(where, "label file") as stream:
        try:
            record = json.loads(stream.read(MAX_LINE_BYTES))
        except (ValueError, RecursionError, EOFError, OSError, zlib.error) as error:
            raise TraceError(
                "the label file is no JSON", where=str(where), why=str(error)
            ) from error
    try:
        return _labels(_require_mapping(record))
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(
            "the label file cannot be understood",
            where=str(where),
            why=f"missing {error}" if isinstance(error, KeyError) else str(error),
            hint="an object with t0, and phases or class_share",
        ) from error


def _labels(record: dict[str, Any]) -> Labels:
    phases: list[Phase] = []
    shares: dict[str, list[tuple[float, float]]] = {}
    _add_shares(shares, record.get("class_share"))
    for entry in record.get("phases") or []:
        start = float(entry["t0"] if "t0" in entry else entry["from"])
        end = float(entry["t_end"] if "t_end" in entry else entry["to"])
        phases.append(Phase(start, end, str(entry.get("phase", entry.get("name", "")))))
        _add_shares(shares, entry.get("class_share"))
    restarts = [
        (first.end, second.start)
        for first, second in pairwise(phases)
        if second.start - first.end > _RESTART_GAP_SECONDS
    ]
    for restart in record.get("restarts") or []:
        gone, back = restart if isinstance(restart, list) else (restart, restart)
        restarts.append((float(gone), float(back)))
    points = [t for share in shares.values() for t, _ in share]
    starts = [phase.start for phase in phases] + points
    known = {"t0", "phases", "class_share", "restarts", "trace"}
    return Labels(
        t0=float(record["t0"]) if "t0" in record or not starts else min(starts),
        phases=tuple(phases),
        class_share=tuple(ClassShare(name, tuple(share)) for name, share in shares.items()),
        restarts=tuple(sorted(restarts)),
        trace=str(record.get("trace", "")),
        other={key: value for key, value in record.items() if key not in known},
    )


def _add_shares(shares: dict[str, list[tuple[float, float]]], entry: Any) -> None:
    for share in entry if isinstance(entry, list) else [entry] if entry else []:
        points = [(float(t), float(value)) for t, value in share["points"]]
        shares.setdefault(str(share["class"]), []).extend(points)


def _open(path: Path, kind: str) -> IO[bytes]:
    """Open a plain or gzip file for reading."""
    try:
        stream = path.open("rb")
        if stream.read(2) == _GZIP_MAGIC:
            stream.close()
            return cast(IO[bytes], gzip.open(path, "rb"))
        stream.seek(0)
        return stream
    except OSError as error:
        raise TraceError(
            f"cannot read the {kind}",
            where=str(path),
            why=error.strerror or str(error),
            hint="the path of a .jsonl or .jsonl.gz file" if kind != "label file" else "",
        ) from error


def _records(
    path: Path, stream: IO[bytes], kind: str, expected: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and the object of each line that is not blank."""
    number = 0
    found = False
    with stream:
        while True:
            try:
                line = stream.readline(MAX_LINE_BYTES)
            except (EOFError, OSError, zlib.error) as error:
                cut = isinstance(error, EOFError)
                raise TraceError(
                    f"the {kind} is cut off" if cut else f"the {kind} is damaged",
                    where=f"{path}, after line {number}",
                    why="the gzip file ends early" if cut else str(error),
                    hint="copying it again; `gzip -t` tells whether a file is whole",
                ) from error
            if not line:
                break
            number += 1
            if len(line) == MAX_LINE_BYTES:
                raise _bad_line(path, number, kind, "is longer than 64 MiB", expected)
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                shown = clip(line[:200].decode("utf-8", "replace"), 60)
                raise _bad_line(path, number, kind, f"is no JSON: {shown!r}", expected) from error
            if not isinstance(record, dict):
                raise _bad_line(path, number, kind, "is no JSON object", expected)
            found = True
            yield number, record
    if not found:
        raise TraceError(f"the {kind} is empty", where=str(path), hint=expected)


def _bad_line(path: Path, number: int, kind: str, why: str, expected: str) -> TraceError:
    return TraceError(
        f"the {kind} has a bad line", where=f"{path}, line {number}", why=why, hint=expected
    )


def _number(record: dict[str, Any], key: str, path: Path, line: int, kind: str) -> float:
    value = _optional(record.get(key))
    if value is None:
        why = f"{key} is no number" if key in record else f"has no {key}"
        raise _bad_line(path, line, kind, why, _FORMAT if kind == "trace" else _REQUEST_FORMAT)
    return value


def _optional(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _count(value: Any) -> int | None:
    number = _optional(value)
    return None if number is None else int(number)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _require_mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("it is no JSON object")
    return value
