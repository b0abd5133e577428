"""Numbers people type: what cannot be is refused by the option's name."""

from __future__ import annotations

import math

from specdrift.errors import UsageError


def positive(option: str, value: float | None) -> None:
    """Refuse what is not a positive, finite number; None is an option not given.

    Raises:
        UsageError: Naming the option.
    """
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise UsageError(f"{option} must be a positive number", where=f"{value:g}")


def at_least_one(option: str, value: int | None) -> None:
    """Refuse what is not a whole number from 1 up; None is an option not given.

    Raises:
        UsageError: Naming the option.
    """
    if value is not None and value < 1:
        raise UsageError(f"{option} must be 1 or more", where=f"{value}")


def share(option: str, value: float | None) -> None:
    """Refuse what is not between 0 and 1; None is an option not given.

    Raises:
        UsageError: Naming the option.
    """
    if value is not None and not 0 <= value <= 1:
        raise UsageError(f"{option} must be between 0 and 1", where=f"{value:g}")
