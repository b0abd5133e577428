"""Policies: what is taken, what is refused, and in which words."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from specdrift import conventions as names
from specdrift.config import Settings, load_policy, parse_maintenance_window, parse_policy
from specdrift.core.policy import LOWER_K, OFF, Mode, WhenUnknown
from specdrift.core.specconfig import NGRAM_PRESET
from specdrift.errors import EXIT_USAGE, PolicyError

LOCAL = {
    "kind": "LocalProcess",
    "command": ["vllm", "serve", "llama"],
    "healthUrl": "http://127.0.0.1:8000/health",
}
SMALLEST: dict[str, Any] = {
    "apiVersion": "specdrift.dev/v1alpha1",
    "kind": "SpecDecodePolicy",
    "metadata": {"name": "llama"},
    "spec": {"source": {"direct": {"urls": ["http://127.0.0.1:8000"]}}},
}


def document(spec: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    made = copy.deepcopy(SMALLEST)
    made["spec"].update(spec or {})
    made.update(top)
    return made


def refusal(found: object) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_policy(found, where="policy.yaml").rules()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert caught.value.exit_code == EXIT_USAGE
    return sentence


def test_the_smallest_policy_observes() -> None:
    policy = parse_policy(document(), where="here")
    assert policy.mode is Mode.OBSERVE
    rules = policy.rules()
    assert [r.name for r in rules.rungs] == [LOWER_K, OFF]
    assert rules.when_unknown is WhenUnknown.RECOMMEND
    assert rules.floor == 0.55
    assert rules.actions_per_day == 4
    assert rules.cooldown == 3600
    assert rules.min_gain == 0.05
    detector = policy.detector_config(3)
    assert detector.false_alarm_interval == 30 * 86400
    assert detector.phase_one == 86400
    assert detector.scrape_interval == 15
    assert detector.smallest_drop == 0.05
    assert detector.charts == 3


def test_all_of_the_design() -> None:
    policy = parse_policy(
        document(
            {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama"},
                "source": {"prometheus": {"url": "http://p:9090", "matchers": {"namespace": "x"}}},
                "mode": "recommend",
                "classes": ["chat", "code"],
                "detector": {
                    "falseAlarmInterval": "30d",
                    "smallestDrop": 0.05,
                    "scrapeInterval": "15s",
                    "phaseOne": "24h",
                },
                "floor": {"acceptance": 0.55, "action": "recommend"},
                "whenBenefitUnknown": "trial",
                "rungs": [
                    {"name": "lower-k"},
                    {"name": "ngram"},
                    {
                        "name": "short",
                        "speculativeConfig": {"method": "eagle3", "num_speculative_tokens": 2},
                    },
                    {
                        "name": "move-code",
                        "classes": ["code"],
                        "route": {"httpRoute": "llama", "backendRef": "llama-nospec"},
                    },
                    {"name": "off"},
                ],
                "outputCheck": {
                    "url": "http://llama:8000",
                    "promptsFrom": {"configMap": "probes"},
                    "maxDivergence": "sameAsAA",
                },
                "live": {"enabled": True, "exploration": 0.01, "persistAfter": "24h"},
                "safety": {
                    "cooldown": "1h",
                    "actionsPerDay": 4,
                    "minGain": 0.05,
                    "rolloutTimeout": "20m",
                    "maintenanceWindows": ["22:00-06:00"],
                },
                "recovery": {"probeAfter": "30m", "maxBackoff": "24h"},
                "cost": {"gpu": "H100-SXM", "gpus": 2},
            }
        ),
        where="here",
    )
    rules = policy.rules()
    assert [r.name for r in rules.rungs] == ["lower-k", "ngram", "short", "off"]
    settings = {r.name: r.settings for r in rules.rungs}
    assert settings["ngram"] == NGRAM_PRESET.settings
    assert settings["short"] == {"method": "eagle3", "num_speculative_tokens": 2}
    assert settings["off"] is None
    assert rules.when_unknown is WhenUnknown.TRIAL
    assert rules.maintenance_only == ((22 * 3600.0, 6 * 3600.0),)
    assert rules.rollout_timeout == 1200
    assert (rules.probe_after, rules.max_backoff) == (1800, 86400)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_annotation_overrides_the_mode(mode: Mode) -> None:
    metadata = {"name": "x", "annotations": {names.ANNOTATION_MODE: mode.value}}
    policy = parse_policy(document({"targetRef": LOCAL}, metadata=metadata), where="here")
    assert policy.mode is mode
    assert policy.rules().mode is mode


def test_an_annotation_with_no_such_mode_is_refused_in_a_sentence() -> None:
    metadata = {"name": "x", "annotations": {names.ANNOTATION_MODE: "auto"}}
    assert "auto" in refusal(document(metadata=metadata))


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        ({"mod": "act"}, "spec.mod", "no such field"),
        ({"detector": {"smallest": 1}}, "spec.detector.smallest", "no such field"),
        ({"mode": "auto"}, "spec.mode", "act"),
        ({"mode": "act"}, "spec", "nothing to act on"),
        (
            {"mode": "act", "targetRef": LOCAL, "safety": {"actionsPerDay": 0}},
            "spec",
            "can never act",
        ),
        ({"source": {}}, "spec.source", "exactly one"),
        (
            {"source": {"direct": {"urls": ["http://x"]}, "prometheus": {"url": "http://p"}}},
            "spec.source",
            "exactly one",
        ),
        ({"targetRef": {"kind": "LocalProcess"}}, "spec.targetRef", "needs command"),
        (
            {"targetRef": {"kind": "LocalProcess", "command": ["x"]}},
            "spec.targetRef",
            "needs healthUrl",
        ),
        ({"targetRef": {"kind": "Deployment"}}, "spec.targetRef", "needs name"),
        ({"rungs": [{"name": "slow"}]}, "spec.rungs.0", "no preset"),
        (
            {"rungs": [{"name": "off", "speculativeConfig": {"method": "ngram"}}]},
            "spec.rungs.0",
            "takes no speculativeConfig",
        ),
        ({"rungs": [{"name": "off"}, {"name": "off"}]}, "spec", "listed twice"),
        ({"detector": {"smallestDrop": 0}}, "spec.detector.smallestDrop", "greater than 0"),
        ({"detector": {"smallestDrop": 1.5}}, "spec.detector.smallestDrop", "less than 1"),
        ({"detector": {"phaseOne": "soon"}}, "spec.detector.phaseOne", "no duration"),
        ({"detector": {"scrapeInterval": 0}}, "spec.detector.scrapeInterval", "positive"),
        ({"safety": {"cooldown": "-1h"}}, "spec.safety.cooldown", "no duration"),
        ({"safety": {"actionsPerDay": -1}}, "spec.safety.actionsPerDay", "greater"),
        ({"safety": {"maintenanceWindows": ["night"]}}, "spec.safety", "HH:MM-HH:MM"),
        ({"recovery": {"probeAfter": "2d"}}, "spec.recovery", "shorter than probeAfter"),
        ({"floor": {"acceptance": 55}}, "spec.floor.acceptance", "less than or equal to 1"),
        ({"cost": {"gpus": 0}}, "spec.cost.gpus", "greater than 0"),
    ],
)
def test_what_is_wrong_is_named(spec: dict[str, Any], field: str, why: str) -> None:
    sentence = refusal(document(spec))
    assert f"policy.yaml, field {field}" in sentence
    assert why in sentence


@pytest.mark.parametrize("value", [float("nan"), float("inf"), ".inf"])
def test_no_duration_is_endless(value: object) -> None:
    refusal(document({"detector": {"falseAlarmInterval": value}}))


@pytest.mark.parametrize("found", [None, [], "text", 3, {}, {"spec": {}}])
def test_what_is_no_policy(found: object) -> None:
    assert "the policy is not valid" in refusal(found)


def test_another_kind_or_version_is_refused() -> None:
    assert "apiVersion" in refusal(document(apiVersion="specdrift.dev/v2"))
    assert "kind" in refusal(document(kind="Deployment"))


def test_metadata_of_a_cluster_is_tolerated() -> None:
    metadata = {"name": "x", "namespace": "serving", "uid": "1", "managedFields": []}
    assert parse_policy(document(metadata=metadata), where="x").metadata.namespace == "serving"


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: specdrift.dev/v1alpha1\n"
        "kind: SpecDecodePolicy\n"
        "metadata: {name: llama}\n"
        "spec:\n"
        "  source: {direct: {urls: [http://127.0.0.1:8000]}}\n"
        '  rungs: [{name: "off"}]\n'
        "  detector: {falseAlarmInterval: 12h}\n"
    )
    policy = load_policy(path)
    assert policy.spec.detector.false_alarm_interval == 43200
    assert [r.name for r in policy.spec.rungs] == ["off"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not valid"),
        (b"a: [", "not valid YAML"),
        (b"a: 1\na: 2\n", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"spec: {source: {direct: {urls: [x]}}}", "apiVersion"),
    ],
)
def test_files_that_are_no_policy(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(content)
    with pytest.raises(PolicyError, match=why) as caught:
        load_policy(path)
    assert "policy.yaml" in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        load_policy(tmp_path / "absent.yaml")
    with pytest.raises(PolicyError, match="cannot read"):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("00:00-24:00", (0.0, 86400.0)),
        ("9:30-17:05", (34200.0, 61500.0)),
        ("22:00-06:00", (79200.0, 21600.0)),
    ],
)
def test_maintenance_windows(text: str, window: tuple[float, float]) -> None:
    assert parse_maintenance_window(text) == window


@pytest.mark.parametrize("text", ["", "9-17", "25:00-26:00", "09:60-10:00", "22:00-24:30"])
def test_no_maintenance_windows(text: str) -> None:
    with pytest.raises(ValueError, match="maintenanceWindows"):
        parse_maintenance_window(text)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECDRIFT_API_TOKEN", raising=False)
    assert Settings().api_token is None
    monkeypatch.setenv("SPECDRIFT_API_TOKEN", "secret")
    monkeypatch.setenv("SPECDRIFT_STATE_DIR", "/var/lib/specdrift")
    assert Settings().api_token == "secret"
    assert Settings().state_dir == Path("/var/lib/specdrift")
