"""Our exposition reader against prometheus_client's, on generated and on real pages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as reference

from specdrift.adapters.exposition import parse_exposition
from specdrift.core.engines import registry
from tests.support.pages import FIXTURES

names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: not name.startswith("__")
)
texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8
) | st.sampled_from(['"', "\\", "\n", "} 1", " # ", "a,b", "=", '\\"', "{", "#"])
values = (
    st.floats().map(repr)
    | st.integers(-(10**20), 10**20).map(str)
    | st.sampled_from(["NaN", "+Inf", "-Inf", "1e+09", "1.5E-3", "0", "-0.0", "Nan", "inf"])
)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def lines(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(label_names, texts, max_size=3))
    blank = draw(st.sampled_from(["", " "]))
    inner = f",{blank}".join(f'{blank}{k}="{escaped(v)}"' for k, v in labels.items())
    block = "{" + inner + draw(st.sampled_from(["", ","])) * bool(labels) + "}"
    if not labels and draw(st.booleans()):
        block = ""
    stamp = draw(st.sampled_from(["", " 1395066363000", " -5"]))
    exemplar = draw(st.sampled_from(["", "", ' # {trace_id="a b"} 0.67'])) if block else ""
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    gap = draw(st.sampled_from([" ", "  "]))
    return f"{draw(names)}{block}{gap}{draw(values)}{stamp}{exemplar}{end}"


@st.composite
def pages(draw: st.DrawFn) -> str:
    body = ["# TYPE first_of_all gauge\n"]
    for line in draw(st.lists(lines(), max_size=8)):
        kind = draw(st.sampled_from(["", "", "gauge", "untyped", "histogram", "summary"]))
        if kind:
            name = line.partition("{")[0].partition(" ")[0]
            body.append(f"# HELP {name} some {{help}} text\n# TYPE {name} {kind}\n")
        body.append(line)
    return "".join(body)


def flat(families: object) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    return [
        (sample.name, tuple(sorted(sample.labels.items())), float(sample.value))
        for family in families  # type: ignore[attr-defined]
        for sample in family.samples
    ]


def same(ours: list[tuple], theirs: list[tuple]) -> bool:  # type: ignore[type-arg]
    return len(ours) == len(theirs) and all(
        a[:2] == b[:2] and (a[2] == b[2] or (math.isnan(a[2]) and math.isnan(b[2])))
        for a, b in zip(sorted(ours, key=repr), sorted(theirs, key=repr), strict=True)
    )


def ours(page: str, wanted: object = None) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    return [
        (s.name, tuple(sorted(s.labels.items())), s.value)
        for s in parse_exposition(page, wanted)  # type: ignore[arg-type]
    ]


@given(pages())
def test_values_are_those_of_prometheus_client(page: str) -> None:
    theirs = flat(reference(page))
    series = [entry[:2] for entry in theirs]
    if len(set(series)) == len(series):
        assert same(ours(page), theirs)


@given(pages(), st.sampled_from(["a", "_", ":", "Z", "first"]))
def test_a_filter_only_leaves_out(page: str, prefix: str) -> None:
    theirs = [entry for entry in flat(reference(page)) if entry[0].startswith(prefix)]
    series = [entry[:2] for entry in theirs]
    if len(set(series)) == len(series):
        assert same(ours(page, (prefix,)), theirs)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.prom")), ids=lambda path: path.stem)
@pytest.mark.parametrize("wanted", [None, registry.wanted], ids=["all", "wanted"])
def test_real_pages(path: object, wanted: object) -> None:
    page = path.read_text()  # type: ignore[attr-defined]
    theirs = flat(reference(page))
    if wanted:
        theirs = [entry for entry in theirs if wanted(entry[0])]  # type: ignore[operator]
    assert theirs
    assert same(ours(page, wanted), theirs)


def test_openmetrics_with_exemplars_and_created() -> None:
    page = (
        '# TYPE a counter\n# HELP a text\na_total{b="c"} 5.0\n'
        'a_created{b="c"} 1520430000.123\n# TYPE h histogram\n'
        'h_bucket{le="1.0"} 4.0 # {trace_id="KOO5S4vxi0o"} 0.67\n'
        'h_bucket{le="+Inf"} 5.0 # {trace_id="x,\\"y\\" } z"} 9.8 1520879607.789\n'
        "h_count 5.0\nh_sum 12.5\n# EOF\n"
    )
    assert same(ours(page), flat(openmetrics(page)))
