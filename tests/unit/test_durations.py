"""Durations as people write them."""

from __future__ import annotations

import math

import pytest

from specdrift.durations import format_duration, parse_duration
from specdrift.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("2m", 120.0),
        ("1h30m", 5400.0),
        ("30d", 2592000.0),
        ("1w", 604800.0),
        ("1.5s", 1.5),
        (" 1s ", 1.0),
        ("5.1ms", 0.0051),
    ],
)
def test_parse(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "5 s", "1s!", "0s", "ms5", "1e3s", "nan", "9" * 400 + "d"]
)
def test_nonsense_names_the_option_and_gives_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="500ms") as caught:
        parse_duration(text, name="--interval")
    assert "--interval" in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0005, "0.5ms"),
        (0.5, "500ms"),
        (1.0, "1s"),
        (1.25, "1.2s"),
        (59.6, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (5400, "1h30m"),
        (86400 * 30, "30d"),
        (86399, "1d"),
        (0, "0s"),
        (-5, "-5s"),
        (math.inf, "forever"),
        (math.nan, "unknown"),
    ],
)
def test_format(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [0.001, 0.25, 1.5, 7.0, 42.0, 61.0, 7200.0, 90000.0, 864000.0])
def test_a_formatted_duration_can_be_read_again(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.02)
