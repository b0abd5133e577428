"""The simulated engine as a process: vLLM's HTTP surface, arguments, start, restart and end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures" / "vllm-0.32"
PROGRAM = (
    "import typer\n"
    "from specdrift.cli.simulate import CONTEXT_SETTINGS, simulate\n"
    "app = typer.Typer(add_completion=False)\n"
    "app.command(context_settings=CONTEXT_SETTINGS)(simulate)\n"
    "app.command()(lambda: None)\n"
    "app(['simulate', *__import__('sys').argv[1:]])\n"
)
EAGLE = '{"method":"eagle3","model":"/models/draft","num_speculative_tokens":3}'
REFUSED = httpx2.TransportError


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engine:
    """One `specdrift simulate` process."""

    def __init__(self, *arguments: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "--port", str(self.port), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20.0)

    def wait(self) -> Engine:
        deadline = time.monotonic() + 20.0
        while time.monotonic() < deadline:
            try:
                if self.client.get("/health").status_code == 200:
                    return self
            except REFUSED:
                pass
            if self.process.poll() is not None:
                raise AssertionError(self.process.communicate()[1])
            time.sleep(0.02)
        raise AssertionError("the simulated engine did not start")

    def metric(self, name: str) -> float | None:
        page = self.client.get("/metrics").raise_for_status().text
        for line in page.splitlines():
            if line.startswith((f"{name} ", f"{name}{{")):
                return float(line.rsplit(" ", 1)[1])
        return None

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        try:
            return self.process.wait(10.0)
        finally:
            self.client.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Engine]]:
    running: list[Engine] = []

    def make(*arguments: str, port: int | None = None) -> Engine:
        running.append(Engine(*arguments, port=port))
        return running[-1]

    yield make
    for engine in running:
        engine.process.kill()
        engine.process.communicate()
        engine.client.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = Engine(
        "--scenario", "no-drift", "--time-scale", "8", "--served-model-name", "tiny",
        "--speculative-config", EAGLE, "--per-request-spec-decode-metrics", "detailed",
        "--enable-per-request-metrics", "--tensor-parallel-size", "8", "--trust-remote-code",
    ).wait()  # fmt: skip
    yield made
    made.process.kill()
    made.process.communicate()
    made.client.close()


def fixture_json(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / name).read_text())
    return loaded


def fixture_events(name: str) -> list[dict[str, Any]]:
    return events((FIXTURES / name).read_text())


def events(text: str) -> list[dict[str, Any]]:
    parts = [part for part in text.split("\n\n") if part.strip()]
    assert parts[-1] == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def post(engine: Engine, path: str, headers: dict[str, str] | None = None, **body: Any) -> Any:
    return engine.client.post(path, json={"model": "tiny", **body}, headers=headers or {})


def test_it_says_that_it_is_simulated(engine: Engine) -> None:
    assert engine.client.get("/version").json() == {"version": "0.32.0+simulated"}
    (model,) = engine.client.get("/v1/models").json()["data"]
    real = fixture_json("models.json")["data"][0]
    assert set(model) == set(real) - {"permission"}
    assert (model["id"], model["owned_by"]) == ("tiny", "specdrift-simulated")


def test_metrics_are_served_as_vllm_serves_them(engine: Engine) -> None:
    answer = engine.client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
    real = (FIXTURES / "metrics-ngram-after-traffic.prom").read_text()
    wanted = {line.split()[2] for line in real.splitlines() if line.startswith("# TYPE ")}
    mine = {line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE ")}
    missing = {name for name in wanted - mine if not name.startswith(("python_gc", "process_"))}
    assert missing <= {
        "http_requests_created",
        "http_request_size_bytes_created",
        "http_response_size_bytes_created",
        "http_request_duration_seconds_created",
    }
    assert {"process_start_time_seconds", "process_cpu_seconds_total", "python_info"} <= mine


def test_a_completion_has_vllms_shape(engine: Engine) -> None:
    real = fixture_json("response-completions_nonstream.json")
    headers = {"x-request-id": "tc.code.abc123", "x-traffic-class": "code"}
    mine = post(
        engine, "/v1/completions", headers, prompt="def f(x):", max_tokens=64, ignore_eos=True
    ).json()
    assert mine["id"] == real["id"] == "cmpl-tc.code.abc123"
    assert set(mine) <= set(real)
    assert mine["system_fingerprint"] == "vllm-0.32.0-simulated"
    assert set(mine["choices"][0]) <= set(real["choices"][0])
    assert mine["choices"][0]["finish_reason"] == "length"
    assert "simulated" in mine["choices"][0]["text"]
    assert mine["usage"]["completion_tokens"] == 64
    assert set(mine["usage"]) == set(real["usage"])
    assert list(mine["metrics"]) == list(real["metrics"])
    speculation = mine["metrics"]["speculative_decoding"]
    assert list(speculation) == list(real["metrics"]["speculative_decoding"])
    steps = speculation["num_spec_steps"]
    accepted = speculation["num_accepted_draft_tokens"]
    assert sum(speculation["per_step_accepted"]) == accepted
    assert len(speculation["per_step_drafted"]) == steps == sum(speculation["acceptance_histogram"])
    assert speculation["num_draft_tokens"] == 3 * steps
    assert speculation["mean_acceptance_length"] == pytest.approx(1 + accepted / steps)
    assert speculation["draft_acceptance_rate"] == pytest.approx(accepted / (3 * steps))


def test_a_chat_answer_has_vllms_shape(engine: Engine) -> None:
    real = fixture_json("response-chat_nonstream.json")
    messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    mine = post(engine, "/v1/chat/completions", messages=messages).json()
    assert set(mine) <= set(real)
    assert mine["id"].startswith("chatcmpl-")
    assert set(mine["choices"][0]["message"]) <= set(real["choices"][0]["message"])
    assert mine["choices"][0]["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("completions", "/v1/completions", {"prompt": "a b c"}),
        ("chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
def test_a_stream_has_vllms_shape(engine: Engine, name: str, path: str, body: Any) -> None:
    real = fixture_events(f"stream-{name}_stream_usage.sse")
    answer = post(
        engine, path, **body, max_tokens=40, ignore_eos=True, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    assert answer.headers["content-type"].startswith("text/event-stream")
    mine = events(answer.text)
    assert set(mine[1]) == set(real[1])
    assert set(mine[-1]) == set(real[-1])
    assert mine[-1]["choices"] == []
    assert mine[-1]["usage"]["completion_tokens"] == 40
    assert set(mine[-1]["usage"]) == set(real[-1]["usage"])
    assert mine[-1]["metrics"]["speculative_decoding"]["num_spec_tokens"] == 3
    assert mine[-2]["choices"][0]["finish_reason"] == "length"
    assert all("metrics" not in event for event in mine[:-1])
    if name == "chat":
        assert mine[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    # One chunk per engine step: tokens of a chunk - 1 = accepted draft tokens of the step.
    steps = len(mine[-1]["metrics"]["speculative_decoding"]["per_step_accepted"])
    assert len([e for e in mine[:-1] if e["choices"][0].get("delta", {}).get("role") is None]) in (
        steps,
        steps + 1,
    )


def test_a_stream_without_usage_has_no_usage_chunk(engine: Engine) -> None:
    real = fixture_events("stream-completions_stream_nousage.sse")
    body = {"prompt": [1, 2, 3], "max_tokens": 5, "stream": True}
    mine = events(post(engine, "/v1/completions", **body).text)
    assert all("usage" not in event for event in mine)
    assert set(mine[-1]) == set(real[-1])


def test_several_answers_carry_no_metrics(engine: Engine) -> None:
    real = fixture_json("response-completions_n2.json")
    mine = post(engine, "/v1/completions", prompt="a", n=2, max_tokens=8, ignore_eos=True).json()
    assert [choice["index"] for choice in mine["choices"]] == [0, 1]
    assert mine["metrics"] is real["metrics"] is None
    assert mine["usage"]["completion_tokens"] == 16
    both = post(engine, "/v1/completions", prompt=["a", "b"], max_tokens=4).json()
    assert len(both["choices"]) == 2


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/completions", b"{", 400),
        ("/v1/completions", b"[1]", 400),
        ("/v1/completions", b"{}", 400),
        ("/v1/completions", b'{"prompt": ""}', 200),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": 0}', 400),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": "9"}', 400),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": 99999}', 400),
        ("/v1/completions", b'{"prompt": "a", "n": 999}', 400),
        ("/v1/completions", b'{"prompt": [1, "a"]}', 400),
        ("/v1/completions", b'{"prompt": "a", "stream": "yes"}', 400),
        ("/v1/completions", b'{"prompt": "a", "stream_options": {}}', 400),
        ("/v1/completions", b'{"prompt": "a", "model": "other"}', 404),
        ("/v1/chat/completions", b'{"messages": []}', 400),
        ("/v1/chat/completions", b'{"messages": ["hi"]}', 400),
    ],
)
def test_bad_requests_get_an_openai_error(
    engine: Engine, path: str, content: bytes, status: int
) -> None:
    answer = engine.client.post(path, content=content)
    assert answer.status_code == status
    if status != 200:
        error = answer.json()["error"]
        assert error["code"] == status
        assert error["message"]


def test_outside_requests_are_counted_by_class_and_a_lost_client_aborts(engine: Engine) -> None:
    post(engine, "/v1/completions", {"x-traffic-class": "batch"}, prompt="a", max_tokens=4)
    page = engine.client.get("/metrics").text
    assert 'specdrift_tap_requests_total{engine="0",model_name="tiny",outcome="success",' \
        'traffic_class="batch"} 1.0' in page  # fmt: skip
    assert 'http_requests_total{handler="/v1/completions",method="POST",status="2xx"}' in page
    aborted = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"}'
    before = engine.metric(aborted)
    body = {"model": "tiny", "prompt": "a", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    with engine.client.stream("POST", "/v1/completions", json=body) as stream:
        next(stream.iter_lines())
    deadline = time.monotonic() + 5.0
    while engine.metric(aborted) == before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.metric(aborted) == (before or 0.0) + 1.0


def test_argv_decides_and_without_it_speculation_is_off(start: Callable[..., Engine]) -> None:
    engine = start("--scenario", "drift-to-off", "--no-tap", "--enable-force-include-usage").wait()
    page = engine.client.get("/metrics").text
    assert "spec_decode" not in page
    assert "specdrift_tap" not in page
    body = {"prompt": "a", "stream": True, "model": None}
    assert "usage" in events(engine.client.post("/v1/completions", json=body).text)[-1]
    started = time.monotonic()
    assert engine.stop(signal.SIGINT) == 0
    assert time.monotonic() - started < 1.0


def test_sigterm_ends_open_streams_and_exits_zero(start: Callable[..., Engine]) -> None:
    engine = start(
        "--no-traffic", "-sc.method", "eagle3", "-sc.model=/d", "-sc.num_speculative_tokens=3"
    )
    engine.wait()
    body = {"prompt": "a", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    with engine.client.stream("POST", "/v1/completions", json=body) as stream:
        lines = stream.iter_lines()
        next(lines)
        engine.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        assert engine.process.wait(10.0) == 0
        assert time.monotonic() - started < 1.0
        rest = [line for line in lines if line]
    assert "restarted" in rest[-1]
    assert engine.process.stderr is not None
    assert "Traceback" not in engine.process.stderr.read()


def test_connections_are_refused_until_it_is_ready_and_after_a_kill(
    start: Callable[..., Engine],
) -> None:
    engine = start("--scenario", "no-drift")
    time.sleep(1.0)
    with pytest.raises(REFUSED):
        engine.client.get("/health")
    engine.wait()
    engine.process.kill()
    engine.process.wait()
    again = start("--scenario", "no-drift", port=engine.port).wait()
    assert again.stop() == 0


def test_the_storys_restart_closes_the_port_and_resets_the_counters(
    start: Callable[..., Engine],
) -> None:
    epoch = time.time() + 2.0
    engine = start(
        "--scenario", "restart-unchanged", "--seed", "3", "--time-scale", "8",
        "--scenario-epoch", repr(epoch), "-sc", EAGLE,
    ).wait()  # fmt: skip
    seen: list[tuple[float, float] | None] = []
    while time.time() < epoch + 7.0:
        try:
            start_time = engine.metric("process_start_time_seconds")
            drafts = engine.metric("vllm:spec_decode_num_drafts_total")
            assert start_time is not None
            assert drafts is not None
            seen.append((start_time, drafts))
        except (REFUSED, httpx2.HTTPStatusError):
            seen.append(None)
        time.sleep(0.05)
    down = seen.index(None)
    assert seen.count(None) >= 2
    before, after = seen[down - 1], seen[-1]
    assert before is not None
    assert after is not None
    assert after[0] > before[0]
    first = next(item for item in seen[down:] if item is not None)
    assert first[1] < before[1]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--speculative-config", '{"method":"ngram","num_speculative_tokens":4,"x":1}'], 1, "'x'"),
        (["--speculative-config", "{method:ngram}"], 1, "not valid JSON"),
        (["--per-request-spec-decode-metrics", "summary"], 1, "needs a speculative config"),
        (["--per-request-spec-decode-metrics", "loud"], 2, "must be one of"),
        (["--max-num-seqs", "none"], 2, "whole number"),
        (["--scenario", "nowhere"], 2, "no such scenario"),
        (["--time-scale", "-1"], 2, "above 0"),
    ],
)
def test_what_it_refuses_is_one_line(arguments: list[str], code: int, part: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--port", "0", *arguments],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert ended.returncode == code
    assert part in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_a_taken_port_is_one_line(engine: Engine) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--port", str(engine.port)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert f"port {engine.port} is taken" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_schema_is_printed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--schema"],
        capture_output=True, text=True, timeout=30, check=True,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert json.loads(ended.stdout)["title"] == "specdrift scenario"
