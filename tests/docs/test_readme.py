"""The README's claims that a machine can check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from specdrift.cli.main import app
from specdrift.config import parse_policy

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_it_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 150
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).is_file(), target


def test_every_command_it_shows_exists() -> None:
    runner = CliRunner()
    shown = set(re.findall(r"\.venv/bin/specdrift (\w+)", README))
    assert {"demo", "watch", "replay", "run", "explain", "simulate"} <= shown
    for command in shown:
        assert runner.invoke(app, [command, "--help"]).exit_code == 0, command


@pytest.mark.parametrize("command", ["demo", "watch", "replay", "run", "explain", "simulate"])
def test_help_says_what_the_exit_codes_or_defaults_are(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_the_policy_it_shows_is_valid_in_both_modes() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    yaml = YAML(typ="safe")
    watching = yaml.load(blocks[0])
    assert parse_policy(watching, where="README").mode.value == "observe"
    acting = yaml.load("spec:\n" + blocks[1])["spec"]
    watching["spec"].update(acting)
    assert parse_policy(watching, where="README").mode.value == "act"
