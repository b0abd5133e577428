"""What every test shares: markers and timeouts by folder, and tools that must not be missing in CI.

A test that needs a program or a package asks for it through the `require` fixture:

    def test_page(require):
        chromium = require("chromium", "chromium-browser", "google-chrome")

On a developer's machine a missing one skips the test. With SPECDRIFT_REQUIRE_ALL=1, as in
continuous integration, it fails the test and names what is missing.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: tests run side by side

import hypothesis
import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
REQUIRE_ALL = "SPECDRIFT_REQUIRE_ALL"

# Seconds a test may take, by the folder it is in; its own `timeout` marker wins.
TIMEOUTS = {
    "unit": 2.0,
    "property": 10.0,
    "golden": 2.0,
    "docs": 30.0,
    "contract": 120.0,
    "e2e": 400.0,
    "bench": 400.0,
}

# Examples are drawn the same way in every run: a failure here is a failure there.
hypothesis.settings.register_profile(
    "specdrift", derandomize=True, deadline=None, max_examples=60, database=None
)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "specdrift"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its folder's name and timeout; keep end-to-end tests on one worker."""
    for item in items:
        if not item.path.is_relative_to(TESTS):
            continue
        folder = item.path.relative_to(TESTS).parts[0]
        if folder not in TIMEOUTS:
            continue
        item.add_marker(getattr(pytest.mark, folder))
        if item.get_closest_marker("timeout") is None:
            # Only the test itself is timed: the first to use a fixture pays for its imports.
            item.add_marker(pytest.mark.timeout(TIMEOUTS[folder], func_only=True))
        if folder in ("e2e", "bench") and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("e2e"))


def _missing(what: str) -> NoReturn:
    if os.environ.get(REQUIRE_ALL, "") not in ("", "0"):
        pytest.fail(f"{what} is required ({REQUIRE_ALL} is set) but missing", pytrace=False)
    pytest.skip(f"needs {what}")


def require_tool(*names: str) -> str:
    """Return the path of the first of these programs that is installed, else skip or fail."""
    for name in names:
        if path := shutil.which(name):
            return path
    _missing(" or ".join(names))


def require_package(name: str) -> None:
    """Skip or fail unless this Python package can be imported."""
    if importlib.util.find_spec(name) is None:
        _missing(f"the Python package {name}")


@pytest.fixture(scope="session")
def require() -> Callable[..., str]:
    """The path of the first installed program of those named; see `require_tool`."""
    return require_tool


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT
