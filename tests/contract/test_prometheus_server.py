"""The Prometheus adapter against a real Prometheus that scrapes pages served here."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from specdrift.adapters.prometheus import PrometheusSource, WorkloadRow
from specdrift.cli.watch import watch
from specdrift.errors import TargetError, TargetUnreachable
from tests.support.pages import histogram, vllm_page
from tests.support.web import Answer, free_port, serve

CONFIG = """
global: {{scrape_interval: 250ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: vllm
    static_configs:
      - {{targets: ["{engines}"], labels: {{namespace: serving}}}}
"""
WINDOW = 3.0
APP = typer.Typer()
APP.command()(watch)


def page(seconds: float) -> str:
    """Model `m` speculates for two classes, `n` does not, `idle` has no traffic."""
    drafts = seconds * 100
    text = vllm_page(
        drafts,
        drafts * 3,
        drafts * 3 * 0.5,
        generated=seconds * 250,
        positions=(),
    )
    text += histogram(
        "vllm:request_time_per_output_token_seconds",
        'engine="0",model_name="m"',
        {"0.01": seconds * 10, "+Inf": seconds * 10},
        seconds * 10 * 0.004,
    )
    for name, share, rate in (("chat", 0.5, 0.7), ("code", 0.5, 0.3)):
        labels = f'engine="0",model_name="m",traffic_class="{name}",num_speculative_tokens="3"'
        for metric, value in (
            ("drafts", drafts * share),
            ("draft_tokens", drafts * 3 * share),
            ("accepted_tokens", drafts * 3 * share * rate),
        ):
            text += f"specdrift_tap_spec_{metric}_total{{{labels}}} {value}\n"
    off = 'engine="0",model_name="n"'
    text += vllm_page(speculation=False, labels=off, generated=seconds * 10, head=False)
    idle = 'engine="0",model_name="idle"'
    return text + vllm_page(labels=idle, head=False)


@contextlib.contextmanager
def prometheus(binary: str, folder: Path, engines: str) -> Iterator[str]:
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(engines=engines.removeprefix("http://")))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                binary,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def source(
    require: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusSource]:
    binary = require("prometheus")
    began = time.monotonic()
    with (
        serve(lambda path: Answer(page(time.monotonic() - began))) as engines,
        prometheus(binary, tmp_path_factory.mktemp("prometheus"), engines) as url,
    ):
        it = PrometheusSource(url, timeout=5)
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(TargetError):
                rows = it.rows(WINDOW)
                # Rates need more than one sample, and each row its own.
                if sum(row.state == "ok" for row in rows) == 3:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.5)
        time.sleep(WINDOW)
        yield it
        it.close()


def test_rows_worst_first(source: PrometheusSource) -> None:
    rows = source.rows(WINDOW)
    assert [(row.model_name, row.traffic_class, row.state) for row in rows] == [
        ("m", "code", "ok"),
        ("m", "", "ok"),
        ("m", "chat", "ok"),
        ("idle", "", "no_traffic"),
        ("n", "", "speculation_off"),
    ]
    assert {(row.namespace, row.job) for row in rows} == {("serving", "vllm")}
    by_class = {row.traffic_class: row for row in rows if row.model_name == "m"}
    assert by_class["code"].acceptance == pytest.approx(0.3, abs=0.02)
    assert by_class["chat"].acceptance == pytest.approx(0.7, abs=0.02)
    whole = by_class[""]
    assert whole.acceptance == pytest.approx(0.5, abs=0.02)
    assert whole.drafts_per_second == pytest.approx(100, rel=0.3)
    assert whole.tokens_per_second == pytest.approx(250, rel=0.3)
    assert (whole.running, whole.waiting) == (2, 1)
    assert whole.time_per_output_token_seconds == pytest.approx(0.004, rel=0.05)
    assert whole.age_seconds is not None
    assert 0 <= whole.age_seconds < 5
    off = rows[-1]
    assert off.acceptance is None
    assert off.drafts_per_second is None
    assert off.tokens_per_second == pytest.approx(10, rel=0.3)


def test_a_window_too_short_for_a_rate_is_said(source: PrometheusSource) -> None:
    whole: WorkloadRow | None = next(
        (row for row in source.rows(0.001) if (row.model_name, row.traffic_class) == ("m", "")),
        None,
    )
    assert whole is not None
    assert whole.state in ("ok", "not_enough_data")


def test_watch_prints_rows_and_json(source: PrometheusSource) -> None:
    text = CliRunner().invoke(APP, ["--prometheus", source.url, "--once", "--window", "3s"])
    assert (text.exit_code, text.stderr) == (0, "")
    lines = text.stdout.splitlines()
    assert lines[1].split() == [
        *("namespace", "job", "model", "class", "acceptance", "drafts/s", "tokens/s"),
        *("running", "ms/token", "age", "state"),
    ]
    assert lines[2].split()[:4] == ["serving", "vllm", "m", "code"]
    assert "speculation is off" in lines[-1]
    got = CliRunner().invoke(APP, ["--prometheus", source.url, "--once", "--json"])
    body = json.loads(got.stdout)
    assert body["window_seconds"] == 300
    assert body["rows"][0]["traffic_class"] == "code"
    assert body["rows"][1]["traffic_class"] is None


def test_a_prometheus_without_engines(require: Callable[..., str], tmp_path: Path) -> None:
    with (
        serve(lambda path: Answer("# TYPE up gauge\n")) as engines,
        prometheus(require("prometheus"), tmp_path, engines) as url,
    ):
        deadline = time.monotonic() + 60
        while True:
            try:
                PrometheusSource(url).rows()
                break
            except TargetUnreachable:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        got = CliRunner().invoke(APP, ["--prometheus", url, "--once"])
    assert got.exit_code == 4
    assert got.stdout == ""
    assert "no inference servers found" in got.stderr
