"""Recorded traffic of real vLLM servers through `specdrift replay`: found, in time, and no more.

The recordings under fixtures/traces are whole ones; their labels score the replay and are never
its input. Seconds count from the labels' t0, or from the start of the phase named.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from specdrift.cli.replay import replay
from specdrift.conventions import CAUSES

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
MIXED = "vllm032-cpu-ngram-code-chat-mixed"
K5 = "vllm0251-h200-eagle3-k5-prose-code-prose"
BIG = "vllm0251-h200-9b-eagle3-k3-prose-code-prose"
UPDATED = "vllm0251-h200-9b-eagle3-k3-target-updated"
ALARM_KEYS = {"t", "change_point", "side", "traffic_class", "effect", "interval", "cause"}
DECISION_KEYS = {"t", "traffic_class", "sentence"}


def command(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(replay)
    return CliRunner().invoke(app, arguments)


@lru_cache
def replayed(name: str, *, log: bool = False, labels: bool = True) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON object of `specdrift replay TRACE ... --json`."""
    arguments = [str(TRACES / f"{name}.jsonl.gz"), "--json"]
    if labels:
        arguments += ["--labels", str(TRACES / f"{name}.labels.json")]
    if log:
        arguments += ["--requests", str(TRACES / f"{name}.requests.jsonl.gz")]
    result = command(*arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    assert result.stdout.count("\n") == 1
    return result.exit_code, json.loads(result.stdout)


def labels(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TRACES / f"{name}.labels.json").read_text())
    return found


def since(name: str) -> Callable[[float], float]:
    zero = float(labels(name)["t0"])
    return lambda t: t - zero


@pytest.mark.parametrize(
    ("name", "log"), [(MIXED, False), (MIXED, True), (K5, False), (BIG, False), (UPDATED, False)]
)
def test_the_shape_of_the_answer(name: str, log: bool) -> None:
    code, found = replayed(name, log=log)
    assert code == (3 if found["alarms"] else 0)
    for alarm in found["alarms"]:
        assert alarm.keys() >= ALARM_KEYS
        assert alarm["side"] in ("drop", "rise")
        assert alarm["cause"] in CAUSES
        assert found["start"] <= alarm["change_point"] <= alarm["t"] <= found["end"]
        low, high = alarm["interval"]
        assert low <= alarm["effect"] <= high
        assert (alarm["effect"] < 0) == (alarm["side"] == "drop")
        assert (alarm["traffic_class"] is None) is (not log)
    for decision in found["decisions"]:
        assert decision.keys() >= DECISION_KEYS
        assert decision["sentence"].endswith(".")
        assert "\n" not in decision["sentence"]
    assert found["false_alarms"] == 0


def test_code_to_chat_is_found_within_15_s_and_nothing_before() -> None:
    code, found = replayed(MIXED)
    phases = {p["phase"]: p for p in labels(MIXED)["phases"]}
    boundary = float(phases["chat"]["from"])
    assert code == 3
    first = found["alarms"][0]
    assert boundary < first["t"] <= boundary + 15
    assert first["side"] == "drop"
    assert first["traffic_class"] is None
    assert abs(first["change_point"] - boundary) <= 10
    # Code at .587, chat at .233.
    assert first["effect"] == pytest.approx(-0.354, abs=0.08)
    assert first["interval"][0] <= -0.354 <= first["interval"][1]
    assert found["baselines"] == {"all traffic": pytest.approx(0.587, abs=0.03)}


def test_with_the_log_it_is_a_change_of_mix() -> None:
    code, found = replayed(MIXED, log=True)
    assert code == 0
    assert found["alarms"] == []
    mixes = [d for d in found["decisions"] if d["cause"] == "mix_shift"]
    assert len(mixes) == 1
    sentence = mixes[0]["sentence"]
    assert sentence.startswith("The mix of traffic changed (chat 0% → ")
    assert "within-class change not estimable (chat has no baseline yet)" in sentence
    boundary = next(p["from"] for p in labels(MIXED)["phases"] if p["phase"] == "chat")
    assert boundary < mixes[0]["t"] <= boundary + 15
    assert found["unattributed"] < 0.02
    assert found["baselines"]["code"] == pytest.approx(0.587, abs=0.03)


def test_h200_prose_to_code_and_back() -> None:
    code, found = replayed(K5)
    at = since(K5)
    assert code == 3
    alarms = [(at(a["t"]), a["side"]) for a in found["alarms"]]
    assert all(t > 68 for t, _ in alarms)
    assert any(68 < t <= 98 and side == "drop" for t, side in alarms)
    assert any(160 < t <= 190 and side == "rise" for t, side in alarms)
    assert alarms[0][1] == "drop"
    assert found["baselines"]["all traffic"] == pytest.approx(0.150, abs=0.02)


def test_h200_9b_prose_to_code_and_back() -> None:
    code, found = replayed(BIG)
    at = since(BIG)
    assert code == 3
    alarms = [(at(a["t"]), a["side"]) for a in found["alarms"]]
    assert all(t > 90 for t, _ in alarms)
    assert any(90 < t <= 115 and side == "drop" for t, side in alarms)
    assert any(200 < t <= 225 and side == "rise" for t, side in alarms)
    assert found["baselines"]["all traffic"] == pytest.approx(0.355, abs=0.02)


def test_an_updated_target_is_changed_with_the_deployment() -> None:
    code, found = replayed(UPDATED)
    at = since(UPDATED)
    assert code == 3
    assert found["failed_scrapes"] == 63  # a gap, and no alarm in it or because of it
    assert len(found["alarms"]) == 1
    alarm = found["alarms"][0]
    assert 169 < at(alarm["t"]) <= 199
    assert alarm["side"] == "drop"
    assert alarm["changed_with_deployment"] is True
    assert alarm["cause"] == "weights_changed"
    assert 101 < at(alarm["change_point"]) < at(alarm["t"])
    assert alarm["interval"][0] < alarm["effect"] < alarm["interval"][1] < 0
    # .353 before, .209 after; the first windows after it are not all of it.
    assert -0.2 < alarm["effect"] < -0.07


def test_labels_only_score() -> None:
    for name in (MIXED, UPDATED):
        _, with_labels = replayed(name)
        _, without = replayed(name, labels=False)
        assert without["alarms"] == with_labels["alarms"]
        assert without["decisions"] == with_labels["decisions"]
        assert without["false_alarms"] is None
        assert without["changes"] == []


def test_delays_of_the_labels() -> None:
    _, found = replayed(K5)
    delays = [c["delay_seconds"] for c in found["changes"]]
    assert len(delays) == 2
    assert all(d is not None and 0 < d <= 30 for d in delays)


def test_lines_for_a_person() -> None:
    trace = str(TRACES / f"{MIXED}.jsonl.gz")
    result = command(trace, "--labels", str(TRACES / f"{MIXED}.labels.json"))
    assert result.exit_code == 3
    assert "158 scrapes over 157 s, 0 failed" in result.stdout
    assert "Acceptance drop: all traffic acceptance 0.59 → 0.2" in result.stdout
    assert "code to chat: alarm after" in result.stdout
    assert "0 false alarms" in result.stdout


def test_no_alarm_is_exit_code_0_and_says_so() -> None:
    # A Phase I longer than the recording can never alarm.
    result = command(str(TRACES / f"{K5}.jsonl.gz"), "--phase-one", "1h")
    assert result.exit_code == 0
    assert "no alarm" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["nowhere.jsonl.gz"], 1, "No such file"),
        ([f"{K5}.jsonl.gz", "--smallest-drop", "5"], 2, "between 0 and 1"),
        ([f"{K5}.jsonl.gz", "--phase-one", "soon"], 2, "no duration"),
        ([f"{K5}.labels.json"], 1, ""),
        ([f"{K5}.jsonl.gz", "--labels", f"{K5}.jsonl.gz"], 1, ""),
        ([f"{K5}.jsonl.gz", "--requests", "nowhere.gz"], 1, "No such file"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], code: int, why: str) -> None:
    placed = [str(TRACES / a) if a.endswith(("gz", "json")) else a for a in arguments]
    result = command(*placed)
    assert result.exit_code == code
    assert result.stdout == ""
    assert why in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert "Traceback" not in result.stderr


def test_a_truncated_recording(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes((TRACES / f"{K5}.jsonl.gz").read_bytes()[:200_000])
    result = command(str(cut))
    assert result.exit_code == 1
    assert "cut.jsonl.gz" in result.stderr
    assert result.stderr.strip().count("\n") == 0
