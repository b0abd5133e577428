"""Committed expected output. SPECDRIFT_UPDATE_GOLDEN=1 writes it anew, for a look at the diff."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden"


def check(name: str, text: str) -> None:
    """Compare text with the committed file of that name under tests/golden."""
    path = GOLDEN / name
    if os.environ.get("SPECDRIFT_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; see tests/support/golden.py"
