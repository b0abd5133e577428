"""The exposition reader: spellings it takes, pages it refuses, and what it says then."""

from __future__ import annotations

import math

import pytest

from specdrift.adapters.exposition import parse_exposition
from specdrift.core.engines.model import Sample
from specdrift.errors import NotAnExposition

TYPE = "# TYPE a counter\n"


def only(line: str) -> Sample:
    (sample,) = parse_exposition(f"{TYPE}{line}\n")
    return sample


@pytest.mark.parametrize(
    ("line", "name", "labels", "value"),
    [
        ("a 5", "a", {}, 5.0),
        ("a{} 5", "a", {}, 5.0),
        ('a{b="c"} 5.5', "a", {"b": "c"}, 5.5),
        ('a{b="c",d="e",} 1e3', "a", {"b": "c", "d": "e"}, 1000.0),
        ('a { b = "c" , d="e" }\t7', "a", {"b": "c", "d": "e"}, 7.0),
        ('  a{b="c"} -1  ', "a", {"b": "c"}, -1.0),
        ('a{b="c"} +Inf', "a", {"b": "c"}, math.inf),
        ('a{b="c"} -Inf', "a", {"b": "c"}, -math.inf),
        ('a{b="c"} 5 1395066363000', "a", {"b": "c"}, 5.0),
        ("a 5 1395066363000", "a", {}, 5.0),
        ('a{b="c"} 5\r', "a", {"b": "c"}, 5.0),
        ("a 5\r", "a", {}, 5.0),
        (r'a{b="x\"y\\z\n",c="\x"} 1', "a", {"b": 'x"y\\z\n', "c": r"\x"}, 1.0),
        ('a{b="} 7 #",c="{,="} 1', "a", {"b": "} 7 #", "c": "{,="}, 1.0),
        ('a_bucket{le="1"} 17 # {trace_id="x y"} 0.5 123', "a_bucket", {"le": "1"}, 17.0),
        ('a_bucket{le="+Inf"} 17 123 # {trace_id="}"} 0.5', "a_bucket", {"le": "+Inf"}, 17.0),
        ('a 17 # {trace_id="x"} 0.5', "a", {}, 17.0),
        ('{"a.b",c="d"} 3', "a.b", {"c": "d"}, 3.0),
        ('a{"c.d"="e"} 3', "a", {"c.d": "e"}, 3.0),
        ('a{b="é\u2028\x0b"} 1.5e-07', "a", {"b": "é\u2028\x0b"}, 1.5e-07),
        ("ns:a_total 3", "ns:a_total", {}, 3.0),
    ],
)
def test_spellings(line: str, name: str, labels: dict[str, str], value: float) -> None:
    assert only(line) == Sample(name, labels, value)


def test_nan_is_a_value() -> None:
    assert math.isnan(only('a{b="c"} NaN').value)


def test_order_bytes_blank_lines_comments_and_byte_order_mark() -> None:
    page = f'\ufeff\n{TYPE}# HELP a {{x}}\n# EOF? no\na{{b="1"}} 1\n\n   \na{{b="0"}} 2\n # c\n'
    assert [s.value for s in parse_exposition(page.encode())] == [1.0, 2.0]


def test_openmetrics_end_without_a_line_feed() -> None:
    assert parse_exposition(TYPE + "a_total 1\n# EOF") == [Sample("a_total", {}, 1.0)]


def test_wanted_by_prefix_and_by_predicate_asked_once_per_name() -> None:
    page = TYPE + 'a{x="1"} 1\na{x="2"} 2\nb{x="1"} 3\nab 4\n'
    assert [s.value for s in parse_exposition(page, ("a",))] == [1.0, 2.0, 4.0]
    asked: list[str] = []
    parse_exposition(page, lambda name: not asked.append(name))
    assert asked.count("a") == 1
    assert parse_exposition(page, lambda name: name == "b") == [Sample("b", {"x": "1"}, 3.0)]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "the body is empty"),
        (b"", "the body is empty"),
        ("  \n\n", "the body is empty"),
        ("<!DOCTYPE html><html><body>502 Bad Gateway</body></html>", "this is an HTML page"),
        ('{"iter": 1}\n', "this is JSON"),
        ("a 1\nb 2\n", "no '# TYPE' line"),
        ("just some words\n", "no '# TYPE' line"),
        (b'# TYPE a counter\na{b="\xff"} 1\n', "not UTF-8"),
        (TYPE + "a 1\na_to", "cut off"),
        (TYPE + 'a{b="c"} 12', "cut off"),
        (TYPE + 'a{b="c"} \n', "line 2"),
        (TYPE + 'a{b="c\n', "line 2"),
        (TYPE + 'a{b="c"}x 1\n', "line 2"),
        (TYPE + 'a{b="c" d="e"} 1\n', "line 2"),
        (TYPE + 'a{b="c",,d="e"} x\n', "line 2"),
        (TYPE + 'a{b="c",b="d"} 1\n', "line 2"),
        (TYPE + "a{b=c} 1\n", "line 2"),
        (TYPE + "a{b} 1\n", "line 2"),
        (TYPE + "a 1_000\n", "line 2"),
        (TYPE + 'a{b="c"} 1_000\n', "line 2"),
        (TYPE + "a\n", "line 2"),
        (TYPE + "a 1\n<html>\n", "line 3"),
        (TYPE + "a-b 1\n", "line 2"),
        (TYPE + "a one\n", "line 2"),
        (TYPE + "a 1 2 3\n", "line 2"),
    ],
)
def test_refused_pages_say_why(body: str | bytes, why: str) -> None:
    with pytest.raises(NotAnExposition) as caught:
        parse_exposition(body, where="http://x/metrics")
    sentence = str(caught.value)
    assert why in sentence
    assert "http://x/metrics" in sentence
    assert "\n" not in sentence
    assert len(sentence) < 400


@pytest.mark.parametrize("second", ['a{b="1",c="2"} 9', 'a{c="2",b="1"} 1', 'a{ b="1",c="2"} 1'])
def test_a_series_given_twice_is_named(second: str) -> None:
    with pytest.raises(NotAnExposition, match=r'duplicate series a\{b="1",c="2"\}'):
        parse_exposition(f'{TYPE}a{{b="1",c="2"}} 1\n{second}\n')


def test_unwanted_lines_are_not_looked_at_for_duplicates() -> None:
    assert parse_exposition(TYPE + "a 1\nb 2\nb 2\n", ("a",)) == [Sample("a", {}, 1.0)]
