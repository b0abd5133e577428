"""Failures of commands: one clear sentence on stderr and the documented exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from specdrift.errors import SpecdriftError


@contextmanager
def exit_on_failure(command: str) -> Iterator[None]:
    """Turn our own errors into a sentence and an exit code; others are bugs and stay loud."""
    try:
        yield
    except SpecdriftError as error:
        print(f"specdrift {command}: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from error
