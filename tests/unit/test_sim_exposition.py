"""The simulated page against pages of a real vLLM 0.32.0."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specdrift import conventions as c
from specdrift.core.specconfig import SpecConfig
from specdrift.sim.engine import SimulatedEngine
from specdrift.sim.scenario import Scenario, load_scenario
from specdrift.sim.text import escape, go_float

FIXTURES = Path(__file__).parent.parent / "fixtures" / "vllm-0.32"
NGRAM = SpecConfig({"method": "ngram", "num_speculative_tokens": 4})
LINE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Page:
    """Types, label names, label values and bucket bounds of a page, as text."""

    def __init__(self, text: str, prefix: str = "vllm:") -> None:
        self.types: dict[str, str] = {}
        self.labels: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        self.bounds: dict[str, list[str]] = defaultdict(list)
        self.values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.totals: dict[str, float] = defaultdict(float)
        for line in text.splitlines():
            if line.startswith("# TYPE ") and line.split()[2].startswith(prefix):
                self.types[line.split()[2]] = line.split()[3]
            match = LINE.fullmatch(line)
            if match is None or not match[1].startswith(prefix):
                continue
            labels = LABEL.findall(match[2] or "")
            self.labels[match[1]].add(tuple(name for name, _ in labels))
            self.totals[match[1]] += float(match[3])
            for name, value in labels:
                self.values[match[1]][name].add(value)
                if name == "le" and value not in self.bounds[match[1]]:
                    self.bounds[match[1]].append(value)


def small_engine(config: SpecConfig | None, until: float, **options: bool) -> SimulatedEngine:
    data = load_scenario("no-drift").model_dump(by_alias=True)
    data["engine"] |= {"max_model_len": 1024, "model": "tiny"}
    for spec in data["classes"].values():
        spec["prompt_tokens"] = {"mean": 100, "sigma": 0.2, "max": 300}
    engine = SimulatedEngine(Scenario.model_validate(data).resolve(0), config, **options)
    engine.advance(until)
    return engine


@pytest.mark.parametrize(
    ("fixture", "config", "until"),
    [
        ("metrics-ngram-before-traffic.prom", NGRAM, 0.0),
        ("metrics-ngram-after-traffic.prom", NGRAM, 8.0),
        ("metrics-speculation-off.prom", None, 8.0),
    ],
)
def test_families_types_labels_and_buckets_are_vllms(
    fixture: str, config: SpecConfig | None, until: float
) -> None:
    real = Page((FIXTURES / fixture).read_text())
    mine = Page(small_engine(config, until).exposition())
    assert mine.types == real.types
    assert mine.labels == real.labels
    assert mine.bounds == real.bounds
    for name, labels in real.values.items():
        for label in set(labels) & {"position", "reason", "finished_reason", "source", "engine"}:
            assert mine.values[name][label] == labels[label], (name, label)


def test_without_speculation_the_spec_series_are_absent() -> None:
    page = small_engine(None, 5.0).exposition()
    assert "spec_decode" not in page
    assert "specdrift_tap_spec_drafts" not in page
    assert f'{c.TAP_SPEC_CONFIG_INFO}{{engine="0",method="off"' in page


def test_the_page_parses_and_is_consistent() -> None:
    engine = small_engine(NGRAM, 10.0)
    families = {f.name: f for f in text_string_to_metric_families(engine.exposition())}
    assert families["vllm:num_requests_running"].samples[0].value == engine.running
    for family in families.values():
        if family.type != "histogram":
            continue
        last: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in family.samples:
            key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            if sample.name.endswith("_bucket"):
                assert sample.value >= last.get(key, 0.0)
                last[key] = sample.value
            elif sample.name.endswith("_count"):
                assert sample.value == last[key]


def test_the_taps_totals_are_the_engines_own() -> None:
    page = Page(small_engine(NGRAM, 10.0).exposition(), prefix="")
    for tap, own in (
        (c.TAP_DRAFTS, "vllm:spec_decode_num_drafts_total"),
        (c.TAP_DRAFT_TOKENS, "vllm:spec_decode_num_draft_tokens_total"),
        (c.TAP_ACCEPTED_TOKENS, "vllm:spec_decode_num_accepted_tokens_total"),
        (c.TAP_ACCEPTED_PER_POSITION, "vllm:spec_decode_num_accepted_tokens_per_pos_total"),
        (c.TAP_OUTPUT_TOKENS, "vllm:generation_tokens_total"),
        (c.TAP_REQUESTS, "vllm:request_success_total"),
        (f"{c.TAP_STEP_SECONDS}_count", "vllm:iteration_tokens_total_count"),
        (f"{c.TAP_TTFT}_count", "vllm:time_to_first_token_seconds_count"),
        (f"{c.TAP_REQUEST_SECONDS}_sum", "vllm:e2e_request_latency_seconds_sum"),
    ):
        assert page.totals[tap] == pytest.approx(page.totals[own]), tap
        assert page.totals[tap] > 0
    assert page.values[c.TAP_DRAFTS][c.LABEL_CLASS] == {"chat", "code"}
    assert page.values[c.TAP_DRAFTS][c.LABEL_NUM_SPECULATIVE_TOKENS] == {"4"}
    assert page.values[c.TAP_DRAFTS][c.LABEL_BATCH_BUCKET] <= set(c.BATCH_BUCKETS)


def test_the_taps_series_start_at_zero_and_every_name_is_published() -> None:
    idle = Page(small_engine(NGRAM, 0.0).exposition(), prefix="specdrift_tap_")
    assert idle.totals[c.TAP_DRAFTS] == 0.0
    assert idle.values[c.TAP_DRAFTS][c.LABEL_CLASS] == {"chat", "code"}
    page = Page(small_engine(NGRAM, 20.0).exposition(), prefix="specdrift_tap_")
    wanted = {
        value
        for name, value in vars(c).items()
        if name.startswith("TAP_") and "CONTROL" not in name
    }
    steering = {v for v in wanted if "control" in v or v.endswith("_num_speculative_tokens")}
    assert wanted - steering <= set(page.types)


def test_the_tap_can_be_left_out() -> None:
    assert "specdrift_tap" not in small_engine(NGRAM, 3.0, tap=False).exposition()


def test_numbers_and_labels_are_written_as_prometheus_client_writes_them() -> None:
    assert [go_float(v) for v in (0, 5, 0.25, 1.7952068392e9, float("inf"), float("nan"))] == [
        "0.0",
        "5.0",
        "0.25",
        "1.7952068392e+09",
        "+Inf",
        "NaN",
    ]
    assert go_float(float("-inf")) == "-Inf"
    assert go_float(123456.0) == "123456.0"
    assert go_float(1234567.0) == "1.234567e+06"
    assert escape('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
