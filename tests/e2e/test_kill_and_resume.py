"""SIGKILL at any moment loses nothing and causes no second action; the engine goes on serving."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from specdrift.adapters.store import STORE_FILE, SqliteStore
from specdrift.errors import StoreError
from specdrift.sim.scenario import load_scenario

KILL_EVERY_SECONDS = 5.3


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _scenario_file(folder: Path) -> Path:
    scenario = json.loads(load_scenario("drift-to-off").model_dump_json(by_alias=True))
    first = scenario["events"][0]
    first["at"] = 36.0
    scenario["events"] = [first]
    scenario["vary"] = {}
    file = folder / "early-drift.yaml"
    with file.open("w") as stream:
        YAML().dump(scenario, stream)
    return file


def _policy_file(folder: Path, port: int) -> Path:
    base = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "specdrift", "simulate", "--port", str(port)]
    command += ["--scenario", str(_scenario_file(folder))]
    command += ["--scenario-epoch", repr(time.time() + 4)]
    command += [
        "--speculative-config",
        '{"method":"eagle3","model":"/models/draft","num_speculative_tokens":3}',
    ]
    policy = {
        "apiVersion": "specdrift.dev/v1alpha1",
        "kind": "SpecDecodePolicy",
        "metadata": {"name": "resumed"},
        "spec": {
            "targetRef": {
                "kind": "LocalProcess",
                "command": command,
                "healthUrl": f"{base}/health",
            },
            "source": {"direct": {"urls": [base]}},
            "mode": "act",
            "detector": {"scrapeInterval": 0.5, "phaseOne": "15s"},
            "whenBenefitUnknown": "trial",
            "rungs": [{"name": "off"}],
            "floor": None,
            "safety": {"cooldown": "2s", "actionsPerDay": 5, "rolloutTimeout": "30s"},
            "recovery": {"probeAfter": "300s", "maxBackoff": "600s"},
        },
    }
    file = folder / "policy.yaml"
    with file.open("w") as stream:
        YAML().dump(policy, stream)
    return file


def _start(folder: Path, policy: Path) -> subprocess.Popen[bytes]:
    with (folder / "run.log").open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "specdrift",
                "run",
                str(policy),
                "--port",
                "0",
                "--state-dir",
                str(folder / "state"),
            ],
            stdout=log,
            stderr=log,
        )


def _decisions(folder: Path) -> list[dict[str, object]]:
    try:
        store = SqliteStore.open_read_only(folder / "state" / STORE_FILE)
    except StoreError:
        return []
    try:
        return [json.loads(d.decision)["data"] for _, d in reversed(store.decisions(100))]
    finally:
        store.close()


@pytest.mark.e2e
def test_killed_again_and_again_it_acts_once_and_finishes(tmp_path: Path) -> None:
    port = _free_port()
    policy = _policy_file(tmp_path, port)
    run = _start(tmp_path, policy)
    record = tmp_path / "state" / "engine.json"
    kills, killed_after_act = 0, False
    deadline = time.monotonic() + 240
    try:
        next_kill = time.monotonic() + KILL_EVERY_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.05)
            kinds = [d["kind"] for d in _decisions(tmp_path)]
            if "verified" in kinds:
                break
            fresh_act = "act" in kinds and not killed_after_act
            if fresh_act or time.monotonic() >= next_kill:
                killed_after_act |= fresh_act
                run.send_signal(signal.SIGKILL)
                run.wait()
                kills += 1
                run = _start(tmp_path, policy)
                next_kill = time.monotonic() + KILL_EVERY_SECONDS
        decisions = _decisions(tmp_path)
        log = (tmp_path / "run.log").read_text()
        assert [d["kind"] for d in decisions] == ["act", "verified"], log
        assert killed_after_act
        assert kills >= 5
        assert decisions[0]["rung"] == "off"
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()
        assert b"vllm:spec_decode_num_drafts_total" not in page, "speculation is off now"
        assert "Traceback" not in log
    finally:
        run.kill()
        run.wait()
        if record.exists():
            os.kill(json.loads(record.read_text())["pid"], signal.SIGTERM)
