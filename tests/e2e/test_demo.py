"""Every shipped scenario as a user starts it: real processes, real HTTP, the wall clock."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdrift.sim.scenario import load_scenario, shipped_scenarios

pytestmark = pytest.mark.e2e
SEED = 11
STORY_SECONDS = 300.0


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """All scenarios at once: they sleep most of the time."""
    folder = tmp_path_factory.mktemp("stories")
    running = {}
    for name in shipped_scenarios():
        with (folder / f"{name}.err").open("wb") as err, (folder / f"{name}.out").open("wb") as out:
            running[name] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "specdrift",
                    "demo",
                    "--headless",
                    "--json",
                    "--scenario",
                    name,
                    "--seed",
                    str(SEED),
                ],
                stdout=out,
                stderr=err,
            )
    yield {"running": running, "folder": folder}
    for process in running.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", shipped_scenarios())
def test_the_loop_does_what_the_scenario_calls_for(name: str, stories: dict[str, Any]) -> None:
    code = stories["running"][name].wait(timeout=STORY_SECONDS)
    told = (stories["folder"] / f"{name}.err").read_text()
    output = (stories["folder"] / f"{name}.out").read_text()
    assert code == 0, told
    assert output.count("\n") == 1
    result = json.loads(output)
    assert result["false_alarms"] == 0, told
    expect = load_scenario(name).expect
    assert (result["action"] is not None) == bool(expect.action), told
    if result["alarm"] is not None:
        assert 0 < result["alarm"] - result["onset"] <= 20, told
    assert result["seconds"] <= 240, told


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry.name))
    return found


def test_the_page_comes_up_and_ctrl_c_leaves_no_child(tmp_path: Path) -> None:
    began = time.monotonic()
    demo = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "specdrift",
            "demo",
            "--port",
            "0",
            "--dashboard-port",
            "0",
            "--state-dir",
            str(tmp_path / "state"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert demo.stdout is not None
        page = ""
        for line in demo.stdout:
            if " page " in line:
                match = re.search(r"http://\S+", line)
                page = match.group(0) if match else ""
                break
        assert page
        with urllib.request.urlopen(page, timeout=10) as answer:
            assert b"<title>" in answer.read()
        assert time.monotonic() - began < 60, "10 s on an idle machine; this one may be busy"
        time.sleep(3)
        children = _children(demo.pid)
        assert len(children) >= 2, "the engine and the page"
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
        assert demo.wait(timeout=20) in (0, 1)
        for child in children:
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)
    finally:
        demo.kill()
        demo.wait()
