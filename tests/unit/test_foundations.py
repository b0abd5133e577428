"""The repository itself: what is pinned, what may be imported, what must be there."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import specdrift
from tests.conftest import REQUIRE_ALL, require_package, require_tool

PACKAGE = Path(specdrift.__file__).parent
LONGEST_FILE = 600


def project(root: Path) -> dict[str, object]:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, absolute, with the line it is on left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            # `from package import x` may be a module or a name in one: both are told.
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
def test_requirements_are_pinned_with_hashes(root: Path, name: str) -> None:
    text = (root / "requirements" / name).read_text()
    blocks = re.findall(r"^(\S+)==\S+.*?(?=^\S|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(blocks) == len(entries) > 20
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in entry, entry


@pytest.mark.parametrize("name", ["run.txt", "dev.txt", "build.in"])
def test_requirements_name_no_address(root: Path, name: str) -> None:
    text = (root / "requirements" / name).read_text()
    assert "://" not in text
    assert not re.search(r"[\w-]+\.(org|com|net|io|dev|host)\b", text)
    assert not re.search(r"(^|\s)/\w+", text), "a path of some machine"
    assert "--index-url" not in text
    assert "--find-links" not in text


def test_dev_requirements_contain_the_run_requirements(root: Path) -> None:
    def pins(name: str) -> set[str]:
        text = (root / "requirements" / name).read_text()
        return set(re.findall(r"^\S+==\S+", text, flags=re.MULTILINE))

    assert pins("run.txt") <= pins("dev.txt")


def test_real_engines_stay_out_of_the_pinned_files(root: Path) -> None:
    for path in (root / "requirements").glob("*.txt"):
        assert "vllm" not in path.read_text()


def test_version_is_stated_once(root: Path) -> None:
    assert project(root)["version"] == specdrift.__version__


def test_licence(root: Path) -> None:
    text = (root / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert project(root)["license"] == "Apache-2.0"


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md", "DESIGN.md", "SECURITY.md"])
def test_document_is_there(root: Path, name: str) -> None:
    assert (root / name).read_text().startswith("# ")


def test_make_help_names_every_target(root: Path) -> None:
    text = (root / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", text, flags=re.MULTILINE)
    assert phony
    for target in phony[1].split():
        assert re.search(rf"^{target}:.*## \S", text, flags=re.MULTILINE), target


def test_files_stay_readable() -> None:
    long = {
        str(path.relative_to(PACKAGE)): lines
        for path in sources(PACKAGE)
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert not long, f"split these (over {LONGEST_FILE} lines): {long}"


def test_core_imports_only_stdlib_numpy_and_scipy() -> None:
    """The import contracts forbid by name; this allows by name, so a new package cannot slip in."""
    allowed = sys.stdlib_module_names | {"numpy", "scipy", "specdrift"}
    for path in sources(PACKAGE / "core"):
        for module in imports(path):
            assert module.partition(".")[0] in allowed, f"{path.name} imports {module}"


def test_dashboards_import_only_conventions(root: Path) -> None:
    """The page is an HTTP client of the API, and takes names from one place."""
    for path in sources(root / "dashboards"):
        for module in imports(path):
            if module.startswith("specdrift."):
                assert module.startswith("specdrift.conventions"), f"{path.name} imports {module}"


def test_missing_tool_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRE_ALL, raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs no-such-tool"):
        require_tool("no-such-tool")
    with pytest.raises(pytest.skip.Exception, match="no_such_package"):
        require_package("no_such_package")
    monkeypatch.setenv(REQUIRE_ALL, "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-tool or nor-this is required"):
        require_tool("no-such-tool", "nor-this")
    assert require_tool("no-such-tool", "sh").endswith("sh")
