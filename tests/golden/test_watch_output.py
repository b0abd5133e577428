"""What `specdrift watch` prints, word for word, with stderr and exit code."""

from __future__ import annotations

import io
import json
import re

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from specdrift.adapters.exposition import parse_exposition
from specdrift.adapters.prometheus import WorkloadRow
from specdrift.cli import watch_json, watch_live, watch_view
from specdrift.cli.watch import watch
from specdrift.cli.watch_targets import TargetView
from specdrift.core.engines import registry
from specdrift.core.summary import summarise
from specdrift.core.windows import Snapshot, window_between
from tests.support.golden import check
from tests.support.pages import fixture, vllm_page
from tests.support.web import Answer, serve

APP = typer.Typer()
APP.command()(watch)
BASE = 'engine="0",model_name="m"'


def tap(chat: int, code: int) -> str:
    """The tap's series of two classes, with this many drafts."""
    text = ""
    for name, drafts, rate in (("chat", chat, 0.3), ("code", code, 0.6)):
        labels = f'{BASE},traffic_class="{name}",num_speculative_tokens="3",batch_bucket="1"'
        text += f"specdrift_tap_spec_drafts_total{{{labels}}} {drafts}\n"
        text += f"specdrift_tap_spec_draft_tokens_total{{{labels}}} {drafts * 3}\n"
        text += f"specdrift_tap_spec_accepted_tokens_total{{{labels}}} {drafts * 3 * rate}\n"
    return text


BEFORE = vllm_page() + tap(50, 50)
AFTER = vllm_page(
    140, 420, 180, generated=500, steps=240, step_seconds=2.6, positions=(100, 58, 22)
) + tap(50, 90)
SECOND = 'engine="1",model_name="m"'


def view(before: str, after: str) -> TargetView:
    """A view of one address whose page was read twice, two seconds apart."""
    old = registry.read_page(parse_exposition(before))
    new = registry.read_page(parse_exposition(after))
    read = [
        (b, window_between(Snapshot("x", 0.0, a), Snapshot("x", 2.0, b)))
        for a, b in zip(old, new, strict=True)
    ]
    total = summarise(read)
    return TargetView(
        "http://engine:8000",
        total.state.value,
        "0.32.0",
        tuple(summarise([each], engine=each[0].engine) for each in read),
        total,
        age_seconds=0.001,
        scrape_seconds=0.012,
        history=(None, 0.2, 0.5, 0.8, 0.25),
    )


VIEWS = {
    "ok": view(BEFORE, AFTER),
    "no-traffic": view(AFTER, AFTER),
    "restarted": view(
        BEFORE, vllm_page(10, 30, 6, generated=40, steps=20, positions=(4, 2, 0), start=2000.0)
    ),
    "speculation-off": view(
        vllm_page(speculation=False), vllm_page(speculation=False, generated=600, steps=300)
    ),
    "damaged": view(BEFORE, vllm_page(tokens="NaN")),
    "two-engines": view(
        BEFORE + vllm_page(labels=SECOND, head=False),
        AFTER + vllm_page(120, 360, 190, positions=(98, 64, 28), labels=SECOND, head=False),
    ),
    "down": TargetView("http://engine:8000", "down", error="connection refused", age_seconds=75.0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_text(name: str) -> None:
    each = VIEWS[name]
    once = "\n".join(watch_view.block(each, 0.0051))
    stream = "\n".join(watch_view.line(each, "12:00:00"))
    console = Console(file=io.StringIO(), width=110, color_system=None)
    console.print(watch_live.page([each], None))
    page = console.file.getvalue()  # type: ignore[attr-defined]
    text = f"--- once\n{once}\n--- stream\n{stream}\n--- page\n{page}"
    check(f"watch/{name}.txt", "\n".join(x.rstrip() for x in text.splitlines()) + "\n")


@pytest.mark.parametrize("name", VIEWS)
def test_json(name: str) -> None:
    body = watch_json.target_json(VIEWS[name], 0.0051)
    check(f"watch/{name}.json", json.dumps(body, indent=1, allow_nan=False) + "\n")


ROWS = [
    WorkloadRow(
        "serving", "vllm", "llama", "code", "ok", 0.3124, 51.234, 1520.5, None, None, 0.0041, 7
    ),
    WorkloadRow("serving", "vllm", "llama", "", "ok", 0.51, 1200, 15200, 12, 1, 0.0035, 7),
    WorkloadRow("batch", "vllm", "qwen", "", "speculation_off", tokens_per_second=90, running=3),
    WorkloadRow("", "", "", "", "not_enough_data"),
]


def test_workloads() -> None:
    console = Console(file=io.StringIO(), width=140, color_system=None)
    console.print(watch_live.workloads(ROWS, "http://prometheus:9090"))
    page = console.file.getvalue()  # type: ignore[attr-defined]
    lines = "\n".join(watch_view.workload_lines(ROWS))
    bodies = "\n".join(json.dumps(watch_json.row_json(row)) for row in ROWS)
    text = f"--- lines\n{lines}\n--- json\n{bodies}\n--- page\n{page}"
    check("watch/workloads.txt", "\n".join(x.rstrip() for x in text.splitlines()) + "\n")


PAGES = {
    "command-idle": fixture("ngram-after-traffic"),
    "command-off": fixture("speculation-off"),
    "command-never-used": fixture("ngram-before-traffic"),
    "command-html": "<html>Bad gateway</html>",
    "command-empty": "",
    "command-cut": BEFORE[:-20],
    "command-twice": BEFORE + 'specdrift_tap_x{a="b"} 1\nspecdrift_tap_x{a="b"} 1\n',
    "command-v0": 'vllm:num_requests_swapped{model_name="m"} 0\n' + BEFORE,
    "command-no-engine": "# TYPE up gauge\nup 1\n",
}


@pytest.mark.parametrize("name", PAGES)
def test_command(name: str) -> None:
    with serve(lambda path: Answer(PAGES[name])) as url:
        got = CliRunner().invoke(APP, [url, "--once", "--interval", "20ms"])
    text = f"exit code {got.exit_code}\n--- stdout\n{got.stdout}--- stderr\n{got.stderr}"
    text = re.sub(r"in the last \S+ms", "in the last SPAN", text.replace(url, "http://engine:8000"))
    check(f"watch/{name}.txt", text)
