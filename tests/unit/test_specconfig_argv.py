"""The speculative config on a command line: every spelling, read and written back."""

from __future__ import annotations

import json

import pytest

from specdrift.core.specconfig import NGRAM_PRESET, OFF, SpecConfig, read_argv, write_argv
from specdrift.errors import SpecConfigError

NGRAM3 = SpecConfig({"method": "ngram", "num_speculative_tokens": 3})
JSON = '{"method": "ngram", "num_speculative_tokens": 3}'
HEAD = ["vllm", "serve", "m", "--port", "8000"]


@pytest.mark.parametrize(
    "spelling",
    [
        ["--speculative-config", JSON],
        [f"--speculative-config={JSON}"],
        ["--speculative_config", JSON],
        [f"--speculative_config={JSON}"],
        ["-sc", JSON],
        [f"-sc={JSON}"],
        ["--speculative", JSON],
        [f"--specu={JSON}"],
        ["--speculative-config.method", "ngram", "--speculative-config.num_speculative_tokens=3"],
        ["--speculative_config.method=ngram", "--speculative_config.num-speculative-tokens", "3"],
        ["-sc.method", "ngram", "-sc.num_speculative_tokens", "3"],
        ["--spec-method", "ngram", "--spec-tokens", "3"],
        ["--spec_method=ngram", "--spec_tokens=3"],
        ["--speculative-config", '{"num_speculative_tokens": 3}', "--spec-method", "ngram"],
    ],
)
def test_every_spelling_is_read_and_written_back(spelling: list[str]) -> None:
    argv = [*HEAD, *spelling, "--max-num-seqs", "64"]
    assert read_argv(argv).config == NGRAM3
    for wanted in (NGRAM_PRESET, SpecConfig({"method": "eagle3", "model": "/m/-d, x"})):
        written = write_argv(argv, wanted)
        assert read_argv(written).config == wanted
        assert [e for e in written if e in HEAD or e in ("--max-num-seqs", "64")] == [
            *HEAD,
            "--max-num-seqs",
            "64",
        ]
    off = write_argv(argv, None)
    assert off == [*HEAD, "--max-num-seqs", "64"]
    assert write_argv(argv, OFF) == off


def test_the_spelling_found_is_kept() -> None:
    lower = SpecConfig({"method": "ngram", "num_speculative_tokens": 1})
    compact = '{"method":"ngram","num_speculative_tokens":1}'
    assert write_argv(["-sc", JSON, "a"], lower) == ["-sc", compact, "a"]
    assert write_argv([f"--speculative_config={JSON}"], lower) == [
        f"--speculative_config={compact}"
    ]
    assert write_argv(["-sc.method", "ngram", "x", "-sc.num_speculative_tokens", "3"], lower) == [
        "-sc.method",
        "ngram",
        "-sc.num_speculative_tokens",
        "1",
        "x",
    ]
    assert write_argv(["--spec-method=ngram", "--spec-tokens=3"], lower) == [
        "--spec-method=ngram",
        "--spec-tokens=1",
    ]


def test_spec_flags_that_cannot_carry_a_key_become_json() -> None:
    written = write_argv(["--spec-method", "ngram", "--spec-tokens", "3", "--x"], NGRAM_PRESET)
    assert written == ["--speculative-config", NGRAM_PRESET.to_json(), "--x"]


def test_without_a_spelling_two_elements_are_appended() -> None:
    assert read_argv(HEAD).config is None
    assert not read_argv(HEAD).present
    assert write_argv(HEAD, NGRAM3) == [
        *HEAD,
        "--speculative-config",
        '{"method":"ngram","num_speculative_tokens":3}',
    ]


@pytest.mark.parametrize("value", ["null", "{}", " null "])
def test_null_is_off(value: str) -> None:
    found = read_argv(["--speculative-config", value])
    assert found.config is None
    assert found.present
    assert write_argv(["a", "--speculative-config", value], None) == ["a"]


@pytest.mark.parametrize(
    "metrics",
    [
        ["--per-request-spec-decode-metrics", "detailed"],
        ["--per-request-spec-decode-metrics=summary"],
        ["--per_request_spec_decode_metrics", "none"],
    ],
)
def test_off_takes_the_per_request_flag_along(metrics: list[str]) -> None:
    argv = ["a", *metrics, "-sc", JSON, "--enable-per-request-metrics"]
    assert write_argv(argv, None) == ["a", "--enable-per-request-metrics"]
    assert set(metrics) <= set(write_argv(argv, NGRAM_PRESET))


def test_of_repeated_flags_the_last_wins_and_one_is_left() -> None:
    argv = ["-sc", '{"method":"suffix"}', "x", "--speculative-config", JSON]
    assert read_argv(argv).config == NGRAM3
    assert write_argv(argv, NGRAM3) == ["x", "--speculative-config", NGRAM3.to_json()]


@pytest.mark.parametrize("dotted_first", [True, False])
def test_dotted_flags_replace_json_wholesale(dotted_first: bool) -> None:
    dotted, whole = ["--speculative-config.num_speculative_tokens", "8"], ["-sc", JSON]
    argv = [*dotted, *whole] if dotted_first else [*whole, *dotted]
    assert read_argv(argv).config == SpecConfig({"num_speculative_tokens": 8})


def test_of_two_dotted_groups_only_the_last_counts() -> None:
    found = read_argv(["--speculative-config.method", "ngram", "-sc.num_speculative_tokens", "3"])
    assert found.config == SpecConfig({"num_speculative_tokens": 3})


def test_dotted_values_are_typed() -> None:
    argv = [
        "-sc.a",
        "1k",
        "-sc.b=1K",
        "-sc.c",
        "true",
        "-sc.d",
        "x y",
        "-sc.e.f",
        "2",
        "-sc.g+=u,v",
    ]
    assert read_argv(argv).config == SpecConfig(
        {"a": 1000, "b": 1024, "c": True, "d": "x y", "e": {"f": 2}, "g": ["u", "v"]}
    )


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["--speculative-config", "{method:ngram}"], "not valid JSON"),
        (["--speculative-config", "method:ngram"], "not valid JSON"),
        (["--speculative-config", "[1]"], "JSON object"),
        (["--speculative-config"], "no value"),
        (["-sc.method"], "no value"),
        (["--spec", JSON], "ambiguous"),
        (["--spec-m", "ngram"], "ambiguous"),
        (["--spec-tokens", "three"], "whole number"),
        (["-sc", JSON, "--spec-method", "eagle"], "mutually exclusive"),
        (["--speculative-config.", "x"], "cannot read the flag"),
        (["-sc.a", "1", "-sc.a.b", "2"], "contradicts"),
    ],
)
def test_what_cannot_be_read_is_one_clear_sentence(argv: list[str], part: str) -> None:
    with pytest.raises(SpecConfigError) as caught:
        read_argv(argv)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_flags_that_look_alike_are_left_alone() -> None:
    argv = ["--swap-space", "4", "--special", "x", "--seed=1", "-s", "y", "--scheduler-cls", "z"]
    assert not read_argv(argv).present
    assert write_argv(argv, None) == argv


def test_a_config_is_a_value() -> None:
    settings = {"method": "ngram"}
    config = SpecConfig(settings)
    settings["method"] = "eagle"
    assert config.method == "ngram"
    assert len({config, SpecConfig({"method": "ngram"})}) == 1
    assert json.loads(NGRAM_PRESET.to_json()) == NGRAM_PRESET.settings


@pytest.mark.parametrize(
    ("settings", "method", "shown"),
    [
        ({"method": "[ngram]", "num_speculative_tokens": 2}, "ngram", "ngram K=2"),
        ({"model": "[ngram]"}, "ngram", "ngram"),
        ({"model": "org/EAGLE3-x", "num_speculative_tokens": 3}, "eagle3", "eagle3 K=3"),
        ({"model": "org/EAGLE-x"}, "eagle", "eagle"),
        ({"model": "small"}, "draft_model", "draft_model"),
        ({"num_speculative_tokens": True}, None, "unknown method"),
        ({}, None, "off"),
    ],
)
def test_method_is_inferred_as_vllm_does(
    settings: dict[str, object], method: str | None, shown: str
) -> None:
    config = SpecConfig(settings)
    assert config.method == method
    assert config.describe() == shown
