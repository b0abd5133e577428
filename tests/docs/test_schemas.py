"""The committed schemas are those of the code, and what the code writes fits them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from specdrift.cli import schemas
from specdrift.config import Policy
from specdrift.core.detector import ActiveAlarm, ChartState, Side, Signal, Statistic
from specdrift.core.economics import Estimate
from specdrift.core.engines.model import Histogram
from specdrift.core.loop import Decision, Kind
from specdrift.core.policy import Alternative
from specdrift.core.windows import Window, WindowState
from specdrift.service import checkpoint

HISTOGRAM = Histogram((0.1, math.inf), (1.0, 2.0), 0.3, 2.0)
VALUES = {
    "window.json": Window("a", 1.0, 2.0, WindowState.OK, time_to_first_token=HISTOGRAM),
    "signal.json": Signal(Side.DROP, 9.0, 7.0, 0.6, 0.4, -0.2, (-0.25, -0.15)),
    "decision.json": Decision(
        1.0,
        Kind.ACT,
        "because",
        rung="off",
        gain=Estimate(0.1, 0.05, 0.15, 12),
        alternatives=(Alternative("off", None, 1.0, 0.1, True, "expected gain +10%"),),
    ),
    "detector-state.json": ChartState(
        drafts=(1.0,),
        drop=(Statistic(),),
        alarm=ActiveAlarm(Side.DROP, 1.0, 0.5, False),
    ),
}
POLICY: dict[str, Any] = {
    "apiVersion": "specdrift.dev/v1alpha1",
    "kind": "SpecDecodePolicy",
    "metadata": {"name": "llama"},
    "spec": {
        "source": {"direct": {"urls": ["http://127.0.0.1:8000"]}},
        "detector": {"falseAlarmInterval": "30d", "scrapeInterval": 15},
        "rungs": [{"name": "lower-k"}, {"name": "off"}],
    },
}


def committed(root: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((root / "schemas" / name).read_text("utf-8"))
    return document


def test_committed_schemas_are_up_to_date(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert schemas.main(["--check", "--folder", str(root / "schemas")]) == 0, (
        capsys.readouterr().err + "run `make schemas`"
    )


def test_check_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert schemas.main(["--folder", str(tmp_path)]) == 0
    assert schemas.main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "window.json").write_text("{}")
    (tmp_path / "signal.json").unlink()
    (tmp_path / "other.json").write_text("{}")
    assert schemas.main(["--check", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    for line in ("window.json is out of date", "signal.json is missing", "other.json is no schema"):
        assert line in said


@pytest.mark.parametrize("name", sorted(VALUES))
def test_what_is_stored_fits_its_schema(root: Path, name: str) -> None:
    schema = committed(root, name)
    jsonschema.Draft202012Validator.check_schema(schema)
    text = json.loads(checkpoint.dump(VALUES[name]))
    jsonschema.validate(text, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**text, "version": 99}, schema)


def test_policies_fit_their_schema(root: Path) -> None:
    schema = committed(root, "policy.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    Policy.model_validate(POLICY)
    jsonschema.validate(POLICY, schema)
    for wrong in ({"mode": "sometimes"}, {"modes": "act"}, {"detector": {"smallestDrop": 2}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**POLICY, "spec": {**POLICY["spec"], **wrong}}, schema)


def test_openapi_lists_what_there_is(root: Path) -> None:
    paths = committed(root, "openapi.json")["paths"]
    reading = {"state", "series", "decisions", "alarms", "explain/{number}"}
    writing = {"mode", "pause", "resume"}
    wanted = {f"/api/v1/{name}" for name in reading | writing}
    assert set(paths) == wanted | {"/healthz", "/readyz", "/metrics"}
    for name in writing:
        assert paths[f"/api/v1/{name}"]["post"]["security"] == [{"HTTPBearer": []}]


def test_every_schema_has_a_reader(root: Path) -> None:
    for path in (root / "schemas").glob("*.json"):
        document = json.loads(path.read_text("utf-8"))
        assert "openapi" in document or document["$schema"].endswith("2020-12/schema"), path.name
