"""Every command given what is wrong: one sentence, the documented exit code, no traceback."""

from __future__ import annotations

import gzip
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specdrift.sim import scenario as scenarios

TRACE = Path(__file__).parents[1] / "fixtures/traces/vllm032-cpu-ngram-code-chat-mixed.jsonl.gz"
SHIPPED = Path(scenarios.__file__).parent / "scenarios/no-drift.yaml"
ACCEPTED = re.compile(r"(vllm:spec_decode_num_accepted_tokens_total\{[^}]*\}) .*")
POLICY = {
    "apiVersion": "specdrift.dev/v1alpha1",
    "kind": "SpecDecodePolicy",
    "metadata": {"name": "llama"},
    "spec": {"mode": "observe"},
}
SOURCED = {
    **POLICY,
    "spec": {"mode": "observe", "source": {"direct": {"urls": ["http://127.0.0.1:9"]}}},
}


def specdrift(*arguments: object, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specdrift", *map(str, arguments)],
        text=True,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        **{"stdout": subprocess.PIPE, **more},  # type: ignore[call-overload]
    )


def one_sentence(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for part in said:
        assert part in done.stderr


@pytest.fixture(scope="module")
def rows() -> list[str]:
    with gzip.open(TRACE, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def changed(line: str, change: Callable[[str], str]) -> str:
    row = json.loads(line)
    return json.dumps({**row, "exposition": change(row["exposition"])})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: [*rows[:9], "no json", *rows[9:]], ("line 10", "no JSON")),
        (lambda rows: ["[1, 2]", *rows], ("line 1", "no JSON object")),
        (lambda rows: [*rows[:30], *rows[20:]], ("line 31", "backwards")),
        (lambda rows: ['{"t": NaN, "exposition": ""}', *rows], ("line 1", "t is no number")),
        (lambda rows: ['{"t": 1.0}', *rows], ("neither exposition nor error",)),
        (lambda rows: [*rows[:20], rows[20][:99]], ("line 21", "no JSON")),
        (lambda rows: [], ("is empty",)),
    ],
    ids=["no-json", "array", "backwards", "nan-time", "no-page", "cut-line", "empty"],
)
def test_a_trace_that_cannot_be_read(
    spoil: Callable[[list[str]], list[str]], said: tuple[str, ...], rows: list[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(line + "\n" for line in spoil(rows)))
    one_sentence(specdrift("replay", trace), 1, "trace.jsonl", *said)


def test_a_truncated_gzip_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl.gz"
    whole = TRACE.read_bytes()
    trace.write_bytes(whole[: len(whole) // 2])
    one_sentence(specdrift("replay", trace), 1, "cut off", "after line", "gzip -t")


@pytest.mark.parametrize(
    "change",
    [
        lambda page: "<html><body>502 Bad Gateway</body></html>",
        lambda page: page[: len(page) // 2],
        lambda page: page + page,
        lambda page: "",
        lambda page: ACCEPTED.sub(r"\1 NaN", page),
        lambda page: ACCEPTED.sub(r"\1 -5", page),
        lambda page: ACCEPTED.sub(r"\1 +Inf", page),
    ],
    ids=["html", "cut", "twice", "empty", "nan", "negative", "infinite"],
)
def test_one_bad_page_in_a_trace_is_a_gap_and_no_more(
    change: Callable[[str], str], rows: list[str], tmp_path: Path
) -> None:
    """The drop at the boundary is found all the same, and nothing before it."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join([*rows[:50], changed(rows[50], change), *rows[51:]]) + "\n")
    found = {}
    for path in (TRACE, trace):
        done = specdrift("replay", path, "--json")
        assert done.returncode == 3, done.stderr
        found[path] = json.loads(done.stdout)["alarms"]
    assert found[trace][0]["side"] == found[TRACE][0]["side"] == "drop"
    assert found[trace][0]["t"] == pytest.approx(found[TRACE][0]["t"], abs=3)


def test_a_trace_without_one_good_page_says_that_nothing_was_judged(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(f'{{"t": {i}.0, "error": "refused"}}\n' for i in range(60)))
    done = specdrift("replay", trace)
    assert done.returncode == 0
    assert "60 failed" in done.stdout
    assert "no baseline was learned" in done.stdout


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--scrape-interval", "0s", "--scrape-interval '0s'"),
        ("--phase-one", "banana", "--phase-one 'banana'"),
        ("--false-alarm-interval", "30", "30d"),
        ("--smallest-drop", "nan", "--smallest-drop must be between 0 and 1"),
        ("--smallest-drop", "1.5", "--smallest-drop must be between 0 and 1"),
    ],
)
def test_an_option_that_means_nothing(option: str, value: str, said: str) -> None:
    one_sentence(specdrift("replay", TRACE, option, value), 2, said)


@pytest.mark.parametrize("verb", ["demo", "simulate"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHIPPED.read_text() + "bogus: 3\n", "bogus"),
        ("a: [1", "not valid YAML"),
        ("", "empty"),
        (None, "no such scenario"),
    ],
)
def test_a_scenario_that_is_none(verb: str, text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    if text is not None:
        path.write_text(text)
    more = ["--headless"] if verb == "demo" else ["--port", "0"]
    one_sentence(specdrift(verb, "--scenario", path, *more), 2, said, "scenario.yaml")


@pytest.mark.parametrize(
    "config",
    [
        '{"method":"ngram"',
        '{"method":"nonsense","num_speculative_tokens":3}',
        '{"method":"ngram","num_speculative_tokens":3,"nope":1}',
        '{"method":"ngram","num_speculative_tokens":-3}',
        '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_min":5,"prompt_lookup_max":2}',
    ],
)
def test_a_speculative_config_that_the_engine_would_refuse(config: str) -> None:
    done = specdrift("simulate", "--port", 0, "--speculative-config", config)
    one_sentence(done, 1, "SpeculativeConfig")


def test_contradictory_spellings() -> None:
    both = ("--spec-method", "ngram", "--speculative-config", '{"method":"eagle3"}')
    one_sentence(specdrift("simulate", "--port", 0, *both), 1, "mutually exclusive")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        one_sentence(specdrift("simulate", "--port", port), 1, f"port {port} is taken")
        policy = tmp_path / "policy.yaml"
        policy.write_text(json.dumps(SOURCED))
        state = ("--state-dir", tmp_path / "state")
        done = specdrift("run", policy, "--port", port, *state, "--ticks", 1)
        one_sentence(done, 1, f"{port}", "taken")


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    one_sentence(specdrift("demo", "--headless", "--state-dir", file / "x"), 2, "Not a directory")
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps(SOURCED))
    done = specdrift("run", policy, "--port", 0, "--state-dir", file / "x", "--ticks", 1)
    one_sentence(done, 1, str(file))


def test_a_policy_that_is_none(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps(POLICY))
    one_sentence(specdrift("run", policy), 2, "policy.yaml", "spec.source")
    one_sentence(specdrift("run", tmp_path / "other.yaml"), 2, "other.yaml", "No such file")


def test_an_output_that_takes_nothing(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = specdrift("replay", TRACE, "--json", stdout=full)
    one_sentence(done, 1, "cannot write to the output")


def test_an_output_that_is_closed_early() -> None:
    command = f"{sys.executable} -m specdrift replay {TRACE} | true"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == ""
