"""`specdrift watch` as a command: what it prints, where, and its exit code."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from specdrift.cli.watch import watch
from tests.support.pages import fixture, vllm_page
from tests.support.web import Answer, free_port, serve

APP = typer.Typer()
APP.command()(watch)


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def target(self) -> dict[str, Any]:
        (line,) = self.out.splitlines()
        (target,) = json.loads(line, parse_constant=refuse)["targets"]
        assert isinstance(target, dict)
        return target


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")


def run(*arguments: str) -> Outcome:
    result = CliRunner().invoke(APP, [*arguments, "--interval", "50ms"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def engine(*pages: str) -> Callable[[str], Answer]:
    """A server whose metrics page is each of these in turn, then the last one for ever."""
    left = list(pages)

    def answer(path: str) -> Answer:
        if path != "/metrics":
            return Answer('{"version": "0.32.0"}', content_type="application/json")
        return Answer(left.pop(0) if len(left) > 1 else left[0])

    return answer


BEFORE = vllm_page()
AFTER = vllm_page(
    140, 420, 180, generated=500, steps=240, step_seconds=2.6, positions=(100, 58, 22)
)


def test_json_has_what_scripts_need_unrounded() -> None:
    with serve(engine(BEFORE, AFTER)) as url:
        got = run(url, "--once", "--json")
    assert (got.code, got.err) == (0, "")
    target = got.target
    assert target["url"] == url
    assert (target["state"], target["engine"], target["version"]) == ("ok", "vllm", "0.32.0")
    assert target["model_name"] == "m"
    assert target["acceptance"] == 180 / 420
    since = target["since_start"]
    assert since["acceptance"] == 180 / 420
    assert since["mean_acceptance_length"] == 1 + 180 / 140
    assert since["per_position"] == [100 / 140, 58 / 140, 22 / 140]
    assert (since["drafts"], since["draft_tokens"], since["accepted_tokens"]) == (140, 420, 180)
    assert since["generation_tokens"] == 500
    window = target["window"]
    assert window["acceptance"] == 0.25
    assert window["tokens_per_second"] == pytest.approx(100 / window["seconds"])
    assert window["step_seconds"] == pytest.approx(0.015)
    assert window["time_per_output_token_seconds"] == pytest.approx(0.006)
    assert (window["running"], window["waiting"]) == (2, 1)
    assert target["break_even"]["verdict"] == "unknown"
    assert target["classes"] == {}
    assert target["missing"] == [
        "vllm:request_time_per_output_token_seconds",
        "vllm:request_queue_time_seconds",
        "vllm:e2e_request_latency_seconds",
    ]
    assert len(target["engines"]) == 1
    assert target["engines"][0]["acceptance"] == 180 / 420


@pytest.mark.parametrize(
    ("page", "state", "acceptance", "window", "code"),
    [
        ("ngram-after-traffic", "no_traffic", 119198 / 234820, "no_traffic", 0),
        ("speculation-off", "speculation_off", None, "no_traffic", 0),
        ("ngram-before-traffic", "no_traffic", None, "no_traffic", 4),
    ],
)
def test_real_idle_pages(
    page: str, state: str, acceptance: float | None, window: str, code: int
) -> None:
    with serve(engine(fixture(page))) as url:
        got = run(f"{url}/metrics", "--once", "--json")
        text = run(url, "--once")
    assert (got.code, got.err, text.code) == (code, "", code)
    assert got.target["state"] == state
    assert got.target["acceptance"] == acceptance
    assert got.target["window"] == window
    said = "speculation is off" if state == "speculation_off" else "no traffic"
    assert said in text.out


def test_restart_between_the_two_readings() -> None:
    after = vllm_page(10, 30, 6, generated=40, steps=20, start=2000.0)
    with serve(engine(BEFORE, after)) as url:
        target = run(url, "--once", "--json").target
    assert target["state"] == "restarted"
    assert target["window"]["acceptance"] == 0.2
    assert target["window"]["tokens_per_second"] is None


def test_several_models_are_shown_each_and_have_no_sum() -> None:
    page = vllm_page() + vllm_page(1, 2, 1, labels='engine="0",model_name="n"', head=False)
    with serve(engine(page)) as url:
        target = run(url, "--once", "--json").target
        text = run(url, "--once").out
    assert target["model_name"] is None
    assert target["acceptance"] is None
    assert [(e["model_name"], e["acceptance"]) for e in target["engines"]] == [
        ("m", 0.5),
        ("n", 0.5),
    ]
    assert "  m engine 0  " in text
    assert "  n engine 0  " in text


def test_data_parallel_engines_have_a_sum() -> None:
    page = vllm_page() + vllm_page(10, 30, 30, labels='engine="1",model_name="m"', head=False)
    with serve(engine(page)) as url:
        target = run(url, "--once", "--json").target
    assert target["acceptance"] == 180 / 330
    assert [e["engine_index"] for e in target["engines"]] == ["0", "1"]


def test_damaged_counters_are_null_and_exit_4() -> None:
    with serve(engine(vllm_page(tokens="NaN"))) as url:
        got = run(url, "--once", "--json")
        text = run(url, "--once")
    assert (got.code, text.code) == (4, 4)
    assert got.target["state"] == "missing"
    assert got.target["acceptance"] is None
    assert "vllm:spec_decode_num_draft_tokens" in got.target["missing"]
    assert "cannot be used: vllm:spec_decode_num_draft_tokens" in text.out


def hundred_megabytes() -> Iterator[bytes]:
    for _ in range(1600):
        yield b"# some text \n" * 5041


BAD: dict[str, tuple[Answer, str, str]] = {
    "html": (Answer("<html>502</html>"), "not_an_exposition", "this is an HTML page"),
    "html type": (Answer("<html>", content_type="text/html"), "not_an_exposition", "text/html"),
    "empty": (Answer(""), "not_an_exposition", "the body is empty"),
    "cut": (Answer(BEFORE[:-20]), "not_an_exposition", "cut off"),
    "twice": (Answer(BEFORE + BEFORE), "not_an_exposition", "duplicate series"),
    "500": (Answer("x", status=500), "error", "status 500"),
    "no engine": (Answer("# TYPE up gauge\nup 1\n"), "error", "no engine metrics on this page"),
    "v0": (
        Answer(BEFORE + 'vllm:spec_decode_efficiency{model_name="m"} 1\n'),
        "not_supported",
        "V0 engine",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_pages_give_one_sentence_and_exit_1(name: str) -> None:
    answer, state, why = BAD[name]
    with serve(lambda path: answer) as url:
        text = run(url, "--once")
        got = run(url, "--once", "--json")
    for outcome in (text, got):
        assert outcome.code == 1
        (sentence,) = outcome.err.splitlines()
        assert sentence.startswith("specdrift watch: ")
        assert why in sentence
        assert url in sentence
        assert "Traceback" not in outcome.err
    assert text.out == ""
    assert got.target["state"] == state
    assert got.target["acceptance"] is None
    assert why in got.target["error"]


def test_a_body_of_100_megabytes() -> None:
    with serve(lambda path: Answer(hundred_megabytes())) as url:
        got = run(url, "--once", "--timeout", "30s")
    assert got.code == 1
    assert "stopped reading at 16 MiB" in got.err


def test_one_target_down_does_not_hide_the_other() -> None:
    down = f"http://127.0.0.1:{free_port()}"
    with serve(engine(BEFORE, AFTER)) as url:
        got = run(url, down, "--once")
    assert got.code == 1
    assert "acceptance" in got.out
    assert "connection refused" in got.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["http://a", "--prometheus", "http://b"],
        ["foo bar", "--once"],
        ["http://a", "--timeout", "soon"],
        ["http://a", "--reference-tpot", "5"],
        ["--prometheus", "ftp://x"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    got = run(*arguments)
    assert got.code == 2
    assert got.out == ""
    assert len(got.err.splitlines()) == 1


def test_prometheus_that_is_none() -> None:
    with serve(engine(BEFORE)) as url:
        got = run("--prometheus", url, "--once")
    assert got.code == 1
    assert "Prometheus" in got.err
    refused = run("--prometheus", f"http://127.0.0.1:{free_port()}", "--once")
    assert refused.code == 1
    assert "connection refused" in refused.err


PROGRAM = """
import typer
from specdrift.cli.watch import watch
app = typer.Typer()
app.command()(watch)
app()
"""


def test_lines_flow_where_there_is_no_terminal_until_interrupted() -> None:
    with serve(engine(BEFORE, AFTER)) as url:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, "--interval", "100ms"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        code = process.wait(10)
        errors = process.stderr.read()
    assert "waiting for a second scrape" in lines[0]
    assert "acceptance 0.250, mean length 1.75, positions 0.500 0.200 0.050" in lines[1]
    assert "no traffic" in lines[2]
    assert "\x1b" not in "".join(lines)
    assert (code, errors) == (0, "")


def test_a_reader_that_leaves_is_no_failure() -> None:
    with serve(engine(BEFORE, AFTER)) as url:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, "--json", "--interval", "20ms"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        first = json.loads(process.stdout.readline())
        process.stdout.close()
        code = process.wait(10)
        errors = process.stderr.read()
    assert first["targets"][0]["state"] == "first"
    assert math.isclose(first["targets"][0]["acceptance"], 0.5)
    assert (code, errors) == (0, "")


def test_on_a_terminal_it_is_a_page() -> None:
    pty = pytest.importorskip("pty")
    with serve(engine(BEFORE, AFTER)) as url:
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, "--interval", "100ms"],
            stdout=follower,
            stderr=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NO_COLOR": "1",
                "TERM": "xterm",
                "COLUMNS": "100",
            },
        )
        os.close(follower)
        seen = b""
        deadline = time.monotonic() + 10
        while b"last windows" not in seen or b"0.250" not in seen:
            assert time.monotonic() < deadline, seen
            seen += os.read(leader, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        os.close(leader)
    assert "█" in seen.decode(errors="replace")
    assert b"\x1b[32m" not in seen
