"""Whatever stands on a command line: what is written is what is read, and the rest is untouched."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from specdrift.core.specconfig import SpecConfig, read_argv, write_argv

KEYS = st.sampled_from(
    ["method", "model", "num_speculative_tokens", "prompt_lookup_max", "a-b", "x.y", "+", "Ü"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5000),
    st.floats(-10, 10),
    st.text(max_size=8),
    st.sampled_from(
        ["ngram", "eagle3", "/models/draft", "-x", "1k", "null", "3", "a=b", "--spec", ""]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
CONFIGS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4).map(SpecConfig)
ORDINARY = st.sampled_from(
    [
        "vllm",
        "serve",
        "/models/m",
        "--port",
        "8000",
        "--max-num-seqs=64",
        "--swap-space",
        "-tp",
        "2",
    ]
)


@st.composite
def spelled(draw: st.DrawFn) -> list[list[str]]:
    """Return speculative flags in one of the spellings, as groups that stay together."""
    settings = draw(
        st.fixed_dictionaries(
            {"method": st.sampled_from(["ngram", "eagle3"])},
            optional={"num_speculative_tokens": st.integers(1, 8)},
        )
    )
    kind = draw(st.sampled_from(["none", "json", "dotted", "flags"]))
    if kind == "none":
        return []
    equals = draw(st.booleans())
    if kind == "json":
        flags = ["--speculative-config", "--speculative_config", "-sc", "--speculative"]
        pairs = [(draw(st.sampled_from(flags)), json.dumps(settings))]
    elif kind == "dotted":
        flag = draw(st.sampled_from(["--speculative-config", "--speculative_config", "-sc"]))
        pairs = [(f"{flag}.{key}", str(value)) for key, value in settings.items()]
    else:
        names = {"method": "--spec-method", "num_speculative_tokens": "--spec-tokens"}
        pairs = [(names[key], str(value)) for key, value in settings.items()]
    return [[f"{flag}={value}"] if equals else [flag, value] for flag, value in pairs]


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Return a command line and its elements that have nothing to do with speculation."""
    groups = [*draw(spelled()), *[[e] for e in draw(st.lists(ORDINARY, max_size=6))]]
    shuffled = draw(st.permutations(groups))
    argv = [element for group in shuffled for element in group]
    spec = {
        element for group in groups for element in group if group[0].startswith(("--spec", "-sc"))
    }
    return argv, [element for element in argv if element not in spec]


@given(command_lines(), CONFIGS)
def test_what_is_written_is_read(line: tuple[list[str], list[str]], config: SpecConfig) -> None:
    argv, rest = line
    before = list(argv)
    written = write_argv(argv, config)
    found = read_argv(written)
    assert found.config == config
    spoken = {
        i for place in found.spellings for i in range(place.start, place.start + place.length)
    }
    assert [element for i, element in enumerate(written) if i not in spoken] == rest
    assert argv == before
    assert write_argv(written, config) == written


@given(command_lines())
def test_off_leaves_nothing_behind(line: tuple[list[str], list[str]]) -> None:
    argv, rest = line
    written = write_argv(argv, None)
    assert written == rest
    assert not read_argv(written).present
