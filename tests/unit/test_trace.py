"""Recorded traffic: shapes that are taken, and one clear sentence for each kind of bad file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from specdrift.adapters.trace import TraceScrape, read_labels, read_requests, read_trace
from specdrift.errors import TraceError

GOOD = [
    {"t": 1.5, "exposition": "# TYPE a counter\n", "scrape_seconds": 0.1},
    {"t": 2.5, "error": "ConnectionRefusedError"},
    {"t": 2.5, "exposition": "", "error": None},
]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def _write(*lines: object, packed: bool = False, cut: int = 0) -> Path:
        text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
        body = gzip.compress(text.encode()) if packed else text.encode()
        path = tmp_path / "trace.any"
        path.write_bytes(body[: len(body) - cut])
        return path

    return _write


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(TraceError) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "trace.any" in sentence or "absent" in sentence
    return sentence


@pytest.mark.parametrize("packed", [False, True])
def test_scrapes(write: Callable[..., Path], packed: bool) -> None:
    got = list(read_trace(write(*GOOD, "  ", packed=packed)))
    assert got == [
        TraceScrape(1.5, "# TYPE a counter\n"),
        TraceScrape(2.5, None, "ConnectionRefusedError"),
        TraceScrape(2.5, "", None),
    ]


def test_no_such_file_is_said_before_anything_is_read(tmp_path: Path) -> None:
    assert "No such file" in refusal(lambda: read_trace(tmp_path / "absent.jsonl.gz"))
    assert "No such file" in refusal(lambda: read_requests(tmp_path / "absent.jsonl.gz"))
    assert "No such file" in refusal(lambda: read_labels(tmp_path / "absent.json"))


def test_empty(write: Callable[..., Path]) -> None:
    assert "is empty" in refusal(lambda: list(read_trace(write())))
    assert "is empty" in refusal(lambda: list(read_trace(write("", " "))))
    assert "is empty" in refusal(lambda: read_requests(write(packed=True)))


def test_truncated_gzip_gives_the_whole_lines_first(write: Callable[..., Path]) -> None:
    many = [{"t": float(t), "exposition": f"{t * 7919 % 104729} " * 50} for t in range(200)]
    path = write(*many, packed=True, cut=2000)
    got: list[TraceScrape] = []
    sentence = refusal(lambda: [got.append(scrape) for scrape in read_trace(path)])
    assert "cut off" in sentence
    assert "ends early" in sentence
    assert 0 < len(got) < 200
    assert f"after line {len(got)}" in sentence


def test_damaged_gzip(write: Callable[..., Path]) -> None:
    path = write(*GOOD * 50, packed=True)
    body = bytearray(path.read_bytes())
    body[-8:-4] = b"\0\0\0\0"
    path.write_bytes(body)
    assert "damaged" in refusal(lambda: list(read_trace(path)))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("not json", "line 2): is no JSON"),
        ('{"t": 3, "expo', "line 2): is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "no JSON object"),
        ({"exposition": ""}, "has no t"),
        ({"t": "3", "exposition": ""}, "t is no number"),
        ('{"t": NaN, "exposition": ""}', "t is no number"),
        ({"t": True, "exposition": ""}, "t is no number"),
        ({"t": 3}, "neither exposition nor error"),
        ({"t": 3, "exposition": 5}, "neither exposition nor error"),
        ({"t": 1.0, "exposition": ""}, "time goes backwards"),
    ],
)
def test_bad_lines(write: Callable[..., Path], line: object, why: str) -> None:
    sentence = refusal(lambda: list(read_trace(write(GOOD[0], line))))
    assert why in sentence
    assert "line 2" in sentence


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "trace.any"
    path.write_bytes(b"\xff\xfe\x00\x01\n")
    assert "no JSON" in refusal(lambda: list(read_trace(path)))


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "trace.any").mkdir()
    assert "directory" in refusal(lambda: list(read_trace(tmp_path / "trace.any")))


SPEC = {
    "num_spec_steps": 3,
    "num_accepted_draft_tokens": 4,
    "num_draft_tokens": 9,
    "num_spec_tokens": 3,
    "per_step_accepted": [1, 3, 0],
    "per_step_drafted": [3, 3, 3],
}


def test_requests_of_three_recorders(write: Callable[..., Path]) -> None:
    path = write(
        {
            "start": 10.0,
            "end": 11.0,
            "traffic_class": "code",
            "ttft_seconds": 0.1,
            "usage": {"prompt_tokens": 5, "completion_tokens": 10},
            "chunk_gaps_seconds": [0.2, 0.3],
            "metrics": {"speculative_decoding": SPEC},
        },
        {
            "start": 9.0,
            "end": 9.5,
            "traffic_class": "prose",
            "status": 200,
            "ttft_seconds": 0.05,
            "output_tokens": 7,
            "prompt_tokens": 3,
            "chunks": [[0.05, 1], [0.06, 3], [0.07, 1], [0.08, 2]],
        },
        {"start": 12.0, "end": 12.0, "metrics": {"speculative_decoding": None}, "concurrency": 8},
    )
    first, second, third = read_requests(path)
    assert (first.traffic_class, first.output_tokens, first.status) == ("prose", 7, 200)
    assert first.spec is None
    estimate = first.spec_from_chunks(3)
    assert estimate is not None
    assert (estimate.drafts, estimate.draft_tokens, estimate.accepted_tokens) == (3, 9, 3)
    assert estimate.estimated
    assert first.spec_from_chunks(1) is None
    assert first.time_per_output_token_seconds == pytest.approx(0.45 / 6)
    assert second.spec is not None
    assert second.spec.acceptance == pytest.approx(4 / 9)
    assert second.spec.per_step_drafted == (3, 3, 3)
    assert second.output_tokens == 10
    assert [seconds for seconds, _ in second.chunks] == pytest.approx([0.1, 0.3, 0.6])
    assert second.spec_from_chunks(3) is None
    assert (third.traffic_class, third.spec, third.chunks) == ("default", None, ())
    assert third.time_per_output_token_seconds is None


def test_a_request_without_drafts_has_no_acceptance(write: Callable[..., Path]) -> None:
    none = dict(SPEC, num_spec_steps=0, num_draft_tokens=0, num_accepted_draft_tokens=0)
    (got,) = read_requests(write({"start": 1, "end": 2, "metrics": {"speculative_decoding": none}}))
    assert got.spec is not None
    assert got.spec.acceptance is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"end": 2}, "has no start"),
        ({"start": 3, "end": 2}, "before it starts"),
        ({"start": 1, "end": 2, "chunks": [1, 2]}, "line 1"),
        ("x", "is no JSON"),
    ],
)
def test_bad_requests(write: Callable[..., Path], line: object, why: str) -> None:
    assert why in refusal(lambda: read_requests(write(line)))


def labels_of(tmp_path: Path, record: object) -> Path:
    path = tmp_path / "trace.any"
    path.write_text(json.dumps(record))
    return path


def test_labels_with_class_share_at_the_top(tmp_path: Path) -> None:
    share = {"class": "code", "points": [[100, 0], [110, 0], [120, 1], [130, 1], [131, 0]]}
    got = read_labels(labels_of(tmp_path, {"t0": 100, "class_share": share, "max_tokens": 9}))
    assert (got.t0, got.phases, got.other) == (100.0, (), {"max_tokens": 9})
    assert [(x.kind, x.start, x.end) for x in got.changes()] == [
        ("class_share", 110, 120),
        ("class_share", 130, 131),
    ]


def test_labels_with_phases_and_a_restart(tmp_path: Path) -> None:
    phases = [
        {"t0": 100, "t_end": 200, "class_share": {"class": "code", "points": [[100, 0]]}},
        {"t0": 260, "t_end": 300, "class_share": {"class": "code", "points": [[260, 0]]}},
    ]
    got = read_labels(labels_of(tmp_path, {"t0": 100, "phases": phases}))
    assert got.restarts == ((200, 260),)
    assert [x.kind for x in got.changes()] == ["restart"]
    assert got.class_share[0].points == ((100, 0), (260, 0))


def test_labels_with_named_phases(tmp_path: Path) -> None:
    phases = [{"from": 10, "to": 20, "phase": "code"}, {"from": 21, "to": 30, "phase": "chat"}]
    got = read_labels(labels_of(tmp_path, {"phases": phases, "trace": "x"}))
    assert (got.t0, got.restarts, got.trace) == (10, (), "x")
    (change,) = got.changes()
    assert (change.kind, change.start, change.end) == ("phase", 20, 21)
    assert change.what == "code to chat"


@pytest.mark.parametrize("record", [[], {}, {"phases": [{}]}, {"t0": "x"}, {"t0": None}])
def test_bad_labels(tmp_path: Path, record: object) -> None:
    assert "cannot be understood" in refusal(lambda: read_labels(labels_of(tmp_path, record)))


def test_labels_that_are_no_json(tmp_path: Path) -> None:
    path = tmp_path / "trace.any"
    path.write_text("{")
    assert "no JSON" in refusal(lambda: read_labels(path))
