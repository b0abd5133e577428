"""A supervised process, with real children: start, change, adopt, fail, crash, stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import specdrift
from specdrift.adapters.localproc import LocalProcess
from specdrift.core.policy import Rollout
from specdrift.errors import ActuationError

FOUND = {"method": "ngram", "num_speculative_tokens": 3}
OTHER = {"method": "ngram", "num_speculative_tokens": 2}
CRASHING = {"method": "ngram", "num_speculative_tokens": 9}
PATIENCE = 30.0

# A stand-in for an engine: serves its own argv, exits at once on K = 9.
ENGINE = """
import json, os, signal, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

print("starting with", *sys.argv[1:], flush=True)
if '"num_speculative_tokens":9' in " ".join(sys.argv):
    sys.exit("ValueError: nine is too many")
if os.environ.get("DEAF"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ.get("WORKER"):
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.environ["WORKER"], "w") as file:
        file.write(str(worker.pid))

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"argv": sys.argv[1:], "pid": os.getpid()}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""

# Starts the engine like specdrift does and then dies without a word.
WATCHER = """
import os, sys, time, urllib.request
from pathlib import Path
from specdrift.adapters.localproc import LocalProcess

def healthy():
    try:
        return urllib.request.urlopen(sys.argv[2], timeout=1).status == 200
    except OSError:
        return False

folder, url, dying, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
process = LocalProcess(command, healthy=healthy, folder=folder, die_with_parent=dying == "dying")
while process.ensure(process.as_found(), "first").status != "ready":
    time.sleep(0.05)
print(process.pid, flush=True)
os._exit(9)
"""


class Bench:
    """One engine's command, address and folder; kills what it started, by id."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/health"
        self.folder = folder / "state"
        self.script = folder / "engine.py"
        self.script.write_text(ENGINE)
        self.command = [
            *(sys.executable, str(self.script), "--port", str(self.port)),
            *("--speculative-config", json.dumps(FOUND, separators=(",", ":"))),
        ]
        self.groups: set[int] = set()

    def asked(self) -> dict[str, object] | None:
        try:
            with urllib.request.urlopen(self.url, timeout=1) as answer:
                return json.load(answer)  # type: ignore[no-any-return]
        except OSError:
            return None

    def process(self, **more: object) -> LocalProcess:
        return LocalProcess(
            self.command,
            healthy=lambda: self.asked() is not None,
            folder=self.folder,
            **more,  # type: ignore[arg-type]
        )

    def until(
        self, step: Callable[[], Rollout], *statuses: str, patience: float = PATIENCE
    ) -> Rollout:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            rollout = step()
            self.remember()
            if rollout.status in statuses:
                return rollout
            time.sleep(0.05)
        pytest.fail(f"never {' or '.join(statuses)}: {rollout}")

    def ensure(
        self, process: LocalProcess, settings: Mapping[str, object] | None, plan: str = "plan-1"
    ) -> Rollout:
        return self.until(lambda: process.ensure(settings, plan), "ready", "failed")

    def serving(self) -> tuple[int, list[str]]:
        answer = self.asked()
        assert answer is not None
        pid, argv = answer["pid"], answer["argv"]
        assert isinstance(pid, int)
        assert isinstance(argv, list)
        return pid, argv

    def remember(self) -> None:
        """Note what was started here, to end it by id: only ever our own script."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((self.folder / "engine.json").read_text())
            if str(self.script) in found["argv"] and found["pid"] > 1:
                self.groups.add(found["pid"])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.remember()
    for group in made.groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rsplit(")", 1)[1].split()[0] in ("Z", "X")


def wait_gone(pid: int, patience: float = 10.0) -> bool:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if gone(pid):
            return True
        time.sleep(0.05)
    return False


def test_start(bench: Bench) -> None:
    process = bench.process()
    assert process.as_found() == FOUND
    assert process.status().status == "in_progress"
    assert process.pid is None
    first = process.ensure(FOUND, "plan-1")
    assert first.status == "in_progress"
    rollout = bench.ensure(process, FOUND)
    assert rollout.status == "ready"
    assert rollout.seconds is not None
    assert 0 < rollout.seconds < PATIENCE
    pid, argv = bench.serving()
    assert process.pid == pid
    assert argv == bench.command[2:]
    assert process.live() == FOUND
    assert process.status().status == "ready"
    # Asking again changes nothing.
    assert process.ensure(FOUND, "plan-2").status == "ready"
    assert bench.serving()[0] == pid


def test_another_config_is_another_process(bench: Bench) -> None:
    process = bench.process()
    bench.ensure(process, FOUND)
    old, _ = bench.serving()
    assert bench.ensure(process, OTHER, "plan-2").status == "ready"
    new, argv = bench.serving()
    assert new != old
    assert wait_gone(old)
    assert process.live() == OTHER
    assert '"num_speculative_tokens":2' in " ".join(argv)
    assert argv[:2] == ["--port", str(bench.port)]

    assert bench.ensure(process, None, "plan-3").status == "ready"
    assert process.live() is None
    assert not any("spec" in part for part in bench.serving()[1])
    assert process.as_found() == FOUND

    assert bench.ensure(process, FOUND, "plan-4").status == "ready"
    assert bench.serving()[1] == bench.command[2:]
    process.stop(5.0)


@pytest.mark.parametrize("dying", ["going-on", "dying"])
def test_the_engine_outlives_its_watcher_unless_it_is_a_demo(bench: Bench, dying: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(specdrift.__file__).parents[1])}
    arguments = [str(bench.folder), bench.url, dying, *bench.command]
    done = subprocess.run(
        [sys.executable, "-c", WATCHER, *arguments],
        stdout=subprocess.PIPE,
        env=environment,
        timeout=PATIENCE,
        check=False,
    )
    bench.remember()
    assert done.returncode == 9
    pid = int(done.stdout)
    if dying == "dying":
        if sys.platform == "linux":
            assert wait_gone(pid)
        return
    heir = bench.process()
    assert heir.pid == pid
    assert heir.live() == FOUND
    assert bench.ensure(heir, FOUND, "later").status == "ready"
    assert bench.serving()[0] == pid
    assert bench.ensure(heir, OTHER, "plan-2").status == "ready"
    assert wait_gone(pid)
    heir.stop(5.0)
    assert bench.asked() is None


def test_a_crash_between_stopping_and_starting_is_resumed(bench: Bench) -> None:
    process = bench.process()
    bench.ensure(process, FOUND)
    pid, _ = bench.serving()
    process.ensure(OTHER, "plan-2")
    assert wait_gone(pid)
    heir = bench.process()
    assert heir.pid is None
    assert bench.ensure(heir, OTHER, "plan-2").status == "ready"
    assert heir.live() == OTHER
    heir.stop(5.0)


def test_a_config_the_engine_dies_of_has_failed_with_its_last_words(bench: Bench) -> None:
    process = bench.process()
    bench.ensure(process, FOUND)
    rollout = bench.ensure(process, CRASHING, "plan-2")
    assert rollout.status == "failed"
    assert "nine is too many" in rollout.reason
    size = (bench.folder / "engine.log").stat().st_size
    for _ in range(5):
        assert process.ensure(CRASHING, "plan-2").status == "failed"
    assert (bench.folder / "engine.log").stat().st_size == size  # not started over and over
    assert bench.ensure(process, FOUND, "plan-3").status == "ready"
    assert process.live() == FOUND
    process.stop(5.0)


def test_an_engine_deaf_to_sigterm_is_killed(bench: Bench) -> None:
    process = bench.process(environment={"DEAF": "1"}, stop_grace=0.5)
    bench.ensure(process, FOUND)
    pid, _ = bench.serving()
    began = time.monotonic()
    assert process.ensure(OTHER, "plan-2").reason == "stopping the engine"
    time.sleep(0.2)
    assert not gone(pid)  # its grace is not over
    assert bench.ensure(process, OTHER, "plan-2").status == "ready"
    assert time.monotonic() - began > 0.5
    assert gone(pid)
    assert bench.serving()[0] != pid
    other = bench.serving()[0]
    process.stop(0.3)
    assert gone(other)
    assert process.pid is None


def test_an_engine_that_dies_is_started_again_with_back_off(bench: Bench) -> None:
    ahead = [0.0]
    process = bench.process(clock=lambda: time.time() + ahead[0])
    bench.ensure(process, OTHER, "plan-7")
    pid, _ = bench.serving()
    os.kill(pid, signal.SIGKILL)
    assert wait_gone(pid)
    assert process.status().status == "in_progress"
    bench.until(process.status, "ready")
    again, _ = bench.serving()
    assert again != pid
    assert process.live() == OTHER
    os.kill(again, signal.SIGKILL)
    assert wait_gone(again)
    rollout = process.status()
    assert rollout.status == "in_progress"
    assert "shortly" in rollout.reason  # one just died: not at once
    assert process.pid is None
    ahead[0] += 120.0
    bench.until(process.status, "ready")
    process.stop(5.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "nonsense", "num_speculative_tokens": 3},
        {"method": "ngram"},
        {"method": "ngram", "num_speculative_tokens": 0},
        {"method": "ngram", "num_speculative_tokens": 3, "unheard_of": 1},
    ],
)
def test_an_impossible_config_is_refused_before_anything_is_stopped(
    bench: Bench, settings: dict[str, object]
) -> None:
    process = bench.process(engine_version=lambda: "0.32.0")
    bench.ensure(process, FOUND)
    pid, _ = bench.serving()
    rollout = process.ensure(settings, "plan-2")
    assert rollout.status == "failed"
    assert rollout.reason
    assert bench.serving()[0] == pid
    assert process.live() == FOUND
    assert process.ensure(FOUND, "plan-3").status == "ready"
    process.stop(5.0)


def test_a_command_that_cannot_be_started_has_failed(bench: Bench) -> None:
    bench.command[0] = "/nowhere/vllm"
    process = bench.process()
    rollout = process.ensure(FOUND, "plan-1")
    assert rollout.status == "failed"
    assert "cannot start the engine" in rollout.reason
    assert "/nowhere/vllm" in rollout.reason


def test_stopping_leaves_nothing_behind(bench: Bench) -> None:
    process = bench.process()
    bench.ensure(process, FOUND)
    pid, _ = bench.serving()
    process.stop(5.0)
    assert gone(pid)
    assert bench.asked() is None
    assert process.pid is None
    assert not (bench.folder / "engine.json").exists()
    process.stop(5.0)  # twice is fine
    assert bench.ensure(process, FOUND, "plan-2").status == "ready"
    process.stop(5.0)


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_workers_do_not_outlive_the_engine(bench: Bench, how: str) -> None:
    """Engines have workers that hold the GPU: one left behind keeps the next from starting."""
    note = bench.script.with_name("worker.pid")
    process = bench.process(environment={"WORKER": str(note)})
    bench.ensure(process, FOUND)
    worker = int(note.read_text())
    assert not gone(worker)
    if how == "stop":
        process.stop(5.0)
    else:
        pid, _ = bench.serving()
        os.kill(pid, signal.SIGKILL)
        assert wait_gone(pid)
        process.status()  # starts it again
    assert wait_gone(worker, 5.0)
    process.stop(5.0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"pid":"x","started":1,"argv":["a"],"plan":"p","spawned_at":1.0}',
        b'{"pid":1,"started":1,"argv":null,"plan":"p","spawned_at":1.0}',
    ],
)
def test_a_damaged_record_is_one_clear_sentence(bench: Bench, content: bytes) -> None:
    bench.folder.mkdir()
    (bench.folder / "engine.json").write_bytes(content)
    with pytest.raises(ActuationError, match="which engine process is ours") as caught:
        bench.process()
    sentence = str(caught.value)
    assert "engine.json" in sentence
    assert "delete the file" in sentence
    assert "\n" not in sentence


def record(pid: int, started: int) -> str:
    made = {"pid": pid, "started": started, "argv": ["x"], "plan": "p", "spawned_at": 1.0}
    return json.dumps(made)


def test_a_pid_that_is_somebody_elses_now_is_not_adopted(bench: Bench) -> None:
    bench.folder.mkdir()
    (bench.folder / "engine.json").write_text(record(os.getppid(), 1))
    assert bench.process().pid is None


@pytest.mark.parametrize("pid", [0, -1])
def test_a_record_never_names_a_group_or_everybody(bench: Bench, pid: int) -> None:
    """Signals to 0 and -1 go to the own group and to every process: such a record is damaged."""
    bench.folder.mkdir()
    (bench.folder / "engine.json").write_text(record(pid, 0))
    try:
        process = bench.process()
    except ActuationError:
        return
    assert process.pid is None
