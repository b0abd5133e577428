"""A stored decision, run again: the same, or the differences by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from specdrift.adapters.store import STORE_FILE, SqliteStore
from specdrift.cli.explain import explain as command
from specdrift.core.economics import Estimate, Operating, SpeedRow, StepTimes
from specdrift.core.loop import Decision, Kind, LoopState, advance, begin
from specdrift.core.policy import OFF, ClassView, Facts, Mode, Rollout, Rules, Rung
from specdrift.core.ticks import StoredDecision, TickRecord
from specdrift.errors import StoreError
from specdrift.service import checkpoint
from specdrift.service.explain import clock, explain

ROWS = tuple(SpeedRow(100.0 + i, 8.0, 0.030, 1200.0, 1000.0) for i in range(20))
FACTS = Facts(
    now=1_700_000_000.0,
    workload="llama",
    classes=(
        ClassView("chat", acceptance=0.61, baseline=0.6),
        ClassView(
            "code",
            acceptance=0.31,
            baseline=0.6,
            side="drop",
            cause="content_drift",
            evidence=("no restart, same engine",),
            effect=-0.29,
            interval=(-0.31, -0.27),
            alarm_time=1_699_999_900.0,
            change_point=1_699_999_880.0,
            windows_since_alarm=20,
        ),
    ),
    rows=ROWS,
    reference=StepTimes().add(SpeedRow(1.0, 8.0, 0.020, 1000.0, 1000.0)),
    point=Operating(8.0, 1.2, 0.030, 3, (0.2, 0.0, 0.0), 1.0),
    benefit=Estimate(0.8, 0.78, 0.82, 12),
    rollout=Rollout("ready"),
)
RULES = Rules(mode=Mode.ACT, rungs=(Rung(OFF),))


def decided(facts: Facts = FACTS, rules: Rules = RULES) -> tuple[Decision, StoredDecision]:
    loop = begin({"method": "eagle3", "num_speculative_tokens": 3}, 0.0)
    _, decision = advance(loop, facts, rules)
    assert decision is not None
    inputs = checkpoint.dump_inputs(loop, facts, rules)
    return decision, StoredDecision(decision.time, checkpoint.dump(decision), inputs)


def test_the_same_inputs_give_the_same_decision() -> None:
    decision, stored = decided()
    found = explain(stored)
    assert found.identical
    assert found.differences == ()
    assert found.decision == decision
    assert decision.kind is Kind.ACT
    text = "\n".join(found.lines)
    for part in (
        "2023-11-14 22:13:20Z  act: ",
        "class chat: acceptance 0.610, baseline 0.600, no alarm",
        "drop of -0.290 [-0.310, -0.270] since 2023-11-14 22:11:20Z, cause content_drift",
        "no restart, same engine",
        "speed against no speculation: 0.800 [0.780, 0.820] over 12 windows",
        "off: expected gain +25.0%; taken: ",
    ):
        assert part in text, text


def test_differences_are_named_field_by_field() -> None:
    decision, stored = decided()
    first = replace(decision.alternatives[0], why="it was Monday")
    other = replace(decision, kind=Kind.HOLD, alternatives=(first,))
    found = explain(replace(stored, decision=checkpoint.dump(other)))
    assert not found.identical
    assert [line.partition(":")[0] for line in found.differences] == [
        "alternatives[0].why",
        "kind",
    ]
    assert found.differences[1] == 'kind: stored "hold", now "act"'


def test_inputs_that_lead_to_no_decision() -> None:
    _, stored = decided()
    quiet = replace(FACTS, classes=(), benefit=None)
    inputs = checkpoint.dump_inputs(LoopState(), quiet, RULES)
    found = explain(replace(stored, inputs=inputs))
    assert found.differences == ("decision: the same inputs lead to no decision now",)


def test_unknown_things_are_said_plainly() -> None:
    view = ClassView("new")
    floor = replace(RULES, floor=0.9)
    view_low = ClassView("low", acceptance=0.2, draft_tokens=3000.0)
    facts = replace(FACTS, classes=(view, view_low), benefit=None, point=None)
    _, stored = decided(facts, floor)
    text = "\n".join(explain(stored).lines)
    assert "class new: no traffic, still learning its baseline, no alarm" in text
    assert "speed against no speculation: not known" in text
    assert "off: gain unknown; not taken: " in text


def test_damaged_inputs_are_an_error_of_the_store() -> None:
    _, stored = decided()
    with pytest.raises(StoreError, match=r"cannot be explained.*decision 3"):
        explain(replace(stored, inputs="{}"), where="decision 3")


@pytest.mark.parametrize("time", [1e300, -1e300, float("inf")])
def test_times_that_no_calendar_has(time: float) -> None:
    assert clock(time) == f"{time:g}"


# --- the command ------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _, stored = decided()
    other = replace(stored, decision=stored.decision.replace('"kind":"act"', '"kind":"hold"'))
    store = SqliteStore(tmp_path / STORE_FILE)
    store.commit(TickRecord(1.0, {}, decisions=(other, stored)))
    store.close()
    return tmp_path


def test_the_newest_decision(folder: Path) -> None:
    result = run("--state-dir", str(folder))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Decision 2 of 2\n2023-11-14 22:13:20Z  act: ")
    assert result.stdout.endswith("Run again from its stored inputs: the same decision.\n")


def test_a_decision_that_differs_now(folder: Path) -> None:
    result = run("1", "--state-dir", str(folder))
    assert result.exit_code == 1
    assert 'kind: stored "hold", now "act"' in result.stdout


def test_json_is_one_line(folder: Path) -> None:
    result = run("--state-dir", str(folder), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert document["identical"] is True
    assert document["decision"]["id"] == 2
    assert document["decision"]["kind"] == "act"


def test_what_cannot_be_explained(folder: Path, tmp_path: Path) -> None:
    result = run("7", "--state-dir", str(folder))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no decision 7" in result.stderr
    assert "a number from 1 to 2" in result.stderr
    result = run("--state-dir", str(tmp_path / "elsewhere"))
    assert result.exit_code == 1
    assert "there is no store" in result.stderr
    empty = tmp_path / "empty"
    SqliteStore(empty / STORE_FILE).close()
    result = run("--state-dir", str(empty))
    assert (result.exit_code, result.stdout) == (4, "")
    assert "nothing was decided yet" in result.stderr
