"""vLLM's page -> EngineCounters: the mapping, old names, several engines, damage, refusals."""

from __future__ import annotations

import pytest

from specdrift import conventions as c
from specdrift.adapters.exposition import parse_exposition
from specdrift.core.engines import registry
from specdrift.core.engines.model import EngineCounters, SpecCounters
from specdrift.errors import EngineNotSupported, TargetError
from tests.support.pages import fixture, histogram, vllm_page


def read(page: str) -> tuple[EngineCounters, ...]:
    return registry.read_page(parse_exposition(page, registry.wanted))


def one(page: str) -> EngineCounters:
    (counters,) = read(page)
    return counters


def test_a_real_page_with_traffic() -> None:
    got = one(fixture("ngram-after-traffic"))
    assert (got.engine_kind, got.model_name, got.engine) == ("vllm", "tiny", "0")
    assert got.spec == SpecCounters(
        60265.0, 234820.0, 119198.0, (39838.0, 30342.0, 26067.0, 22951.0)
    )
    assert got.process_start == 1.7952068392e9
    assert got.missing == got.damaged == ()
    assert got.running == got.waiting == got.kv_cache_usage == 0.0
    assert got.step_seconds is not None
    assert got.time_per_output_token is not None
    assert got.request_steps == got.step_seconds.count
    assert got.request_step_seconds == got.step_seconds.sum
    assert got.request_steps != got.time_per_output_token.count
    assert got.method is None
    assert got.by_class == ()


def test_real_pages_without_traffic_and_without_speculation() -> None:
    before = one(fixture("ngram-before-traffic"))
    assert before.spec == SpecCounters(0.0, 0.0, 0.0, (0.0,) * 4)
    off = one(fixture("speculation-off"))
    assert off.spec is None
    assert off.damaged == ()
    assert off.generation_tokens is not None
    assert one(fixture("ngram-after-restart")).process_start != before.process_start


def test_mapping() -> None:
    got = one(vllm_page())
    assert got.spec == SpecCounters(100, 300, 150, (80, 50, 20))
    assert (got.generation_tokens, got.prompt_tokens, got.requests_finished) == (400, 50, 7)
    assert (got.steps, got.request_steps, got.request_step_seconds) == (100, 200, 2.0)
    assert (got.first_tokens, got.running, got.waiting) == (10, 2, 1)
    assert (got.kv_cache_usage, got.process_start) == (0.25, 1000.0)
    # Per step is never taken for per token.
    assert got.time_per_output_token is None
    assert "vllm:request_time_per_output_token_seconds" in got.missing


@pytest.mark.parametrize("prefix", ["vllm:", "ray_vllm:", "ray_vllm_"])
@pytest.mark.parametrize("total", [True, False])
def test_spellings_of_ray_and_without_total(prefix: str, total: bool) -> None:
    page = vllm_page(prefix=prefix)
    if not total:
        for name in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos"):
            page = page.replace(f"num_{name}_total", f"num_{name}")
        page = page.replace("generation_tokens_total", "generation_tokens")
    assert one(page) == one(vllm_page())


def test_series_of_several_replicas_add_up() -> None:
    two = vllm_page(labels='engine="0",model_name="m",ReplicaId="a"', prefix="ray_vllm_")
    two += vllm_page(
        labels='engine="0",model_name="m",ReplicaId="b"', prefix="ray_vllm_", head=False
    )
    got = one(two)
    assert got.spec == SpecCounters(200, 600, 300, (160, 100, 40))
    assert (got.running, got.kv_cache_usage, got.steps) == (4, 0.25, 200)


def test_old_names() -> None:
    page = vllm_page().replace("kv_cache_usage_perc", "gpu_cache_usage_perc")
    page = page.replace("inter_token_latency_seconds", "time_per_output_token_seconds")
    got = one(page)
    assert got.kv_cache_usage == 0.25
    assert got.request_steps == 200
    assert got.time_per_output_token is None


def test_old_and_new_name_on_one_page_count_once() -> None:
    page = vllm_page() + histogram(
        "vllm:time_per_output_token_seconds", 'engine="0",model_name="m"', {"+Inf": 200}, 2.0
    )
    assert one(page).request_steps == 200


def test_several_models_and_engines() -> None:
    page = vllm_page(labels='engine="0",model_name="m"')
    page += vllm_page(1, 2, 1, labels='engine="1",model_name="m"', head=False)
    page += vllm_page(speculation=False, labels='engine="0",model_name="n"', head=False)
    got = read(page)
    assert [(e.model_name, e.engine) for e in got] == [("m", "0"), ("m", "1"), ("n", "0")]
    assert [e.spec and e.spec.drafts for e in got] == [100, 1, None]
    assert {e.process_start for e in got} == {1000.0}


def test_no_engine_label_is_engine_zero() -> None:
    assert one(vllm_page(labels='model_name="m"')).engine == "0"


@pytest.mark.parametrize("bad", ["NaN", "-1", "+Inf"])
def test_a_value_no_counter_can_have_is_missing_not_zero(bad: str) -> None:
    got = one(vllm_page(drafts=bad))
    assert got.spec is None
    assert got.damaged == ("vllm:spec_decode_num_drafts",)
    assert "vllm:spec_decode_num_drafts" in got.missing
    text = vllm_page().replace("generation_tokens_total{", "x{", 0)
    tokens = text.replace(
        'generation_tokens_total{engine="0",model_name="m"} 400',
        f'generation_tokens_total{{engine="0",model_name="m"}} {bad}',
    )
    got = one(tokens)
    assert got.generation_tokens is None
    assert got.damaged == ("vllm:generation_tokens",)
    assert got.spec is not None


def test_part_of_the_spec_series_is_damage_not_speculation_off() -> None:
    lines = [x for x in vllm_page().splitlines() if not x.startswith("vllm:spec_decode_num_drafts")]
    got = one("\n".join(lines) + "\n")
    assert got.spec is None
    assert got.damaged == ("vllm:spec_decode_num_drafts",)


def test_positions_that_cannot_be() -> None:
    got = one(vllm_page().replace('position="1"', 'position="7"'))
    assert got.spec is not None
    assert got.spec.accepted_per_position == ()
    assert "vllm:spec_decode_num_accepted_tokens_per_pos" in got.damaged


@pytest.mark.parametrize(
    "damage",
    [
        ('le="+Inf"} 200', 'le="+Inf"} 90'),
        ('le="+Inf"} 200', 'le="0.5"} 200'),
        ('le="0.01"} 100', 'le="0.01"} NaN'),
        ('le="0.01"}', 'le="x"}'),
        ("_seconds_sum", "_seconds_gone"),
    ],
)
def test_a_histogram_that_is_none(damage: tuple[str, str]) -> None:
    head, name, rest = vllm_page().partition("# TYPE vllm:inter_token_latency_seconds")
    got = one(head + name + rest.replace(*damage, 1))
    assert got.step_seconds is None
    assert got.request_steps is None
    assert "vllm:inter_token_latency_seconds" in got.damaged


def test_restart_is_seen_without_process_start() -> None:
    page = vllm_page(head=False) + 'vllm:generation_tokens_created{engine="0",model_name="m"} 7\n'
    assert one(page).process_start == 7.0
    assert one(vllm_page(head=False)).process_start is None


@pytest.mark.parametrize(
    "series",
    ["spec_decode_efficiency", "spec_decode_num_emitted_tokens_total", "num_requests_swapped"],
)
def test_v0_is_refused_with_the_reason(series: str) -> None:
    page = vllm_page() + f'vllm:{series}{{model_name="m"}} 1\n'
    with pytest.raises(EngineNotSupported, match="running totals") as caught:
        registry.read_page(parse_exposition(page), where="http://x")
    assert "http://x" in str(caught.value)


@pytest.mark.parametrize(
    "page",
    [
        "# TYPE up gauge\nup 1\n",
        '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{server="http://a"} 1\n',
        "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info 1\n",
    ],
)
def test_pages_without_an_engine(page: str) -> None:
    with pytest.raises(TargetError, match="no engine metrics on this page"):
        read(page)


@pytest.mark.parametrize("name", ["sglang:gen_throughput", "trtllm_num_requests_running"])
def test_other_engines_are_named(name: str) -> None:
    with pytest.raises(EngineNotSupported, match=r"SGLang|TensorRT-LLM"):
        read(f"# TYPE {name} gauge\n{name} 1\n")


BASE = 'engine="0",model_name="m"'


def tap_page() -> str:
    text = vllm_page()
    for name, chat, code in (
        (c.TAP_DRAFTS, 10, 20),
        (c.TAP_DRAFT_TOKENS, 30, 60),
        (c.TAP_ACCEPTED_TOKENS, 15, 40),
    ):
        text += f"# TYPE {name} counter\n"
        for bucket in ("1", "2-8"):
            labels = (
                f'{BASE},traffic_class="chat",num_speculative_tokens="3",batch_bucket="{bucket}"'
            )
            text += f"{name}{{{labels}}} {chat}\n"
        labels = f'{BASE},traffic_class="code",num_speculative_tokens="unknown",batch_bucket="1"'
        text += f"{name}{{{labels}}} {code}\n"
    for position, count in enumerate((16, 9, 5)):
        labels = f'{BASE},traffic_class="chat",num_speculative_tokens="3",position="{position}"'
        text += f"{c.TAP_ACCEPTED_PER_POSITION}{{{labels}}} {count}\n"
    text += f'{c.TAP_OUTPUT_TOKENS}{{{BASE},traffic_class="chat"}} 70\n'
    text += f'{c.TAP_REQUESTS}{{{BASE},traffic_class="chat",outcome="success"}} 3\n'
    text += f'{c.TAP_REQUESTS}{{{BASE},traffic_class="chat",outcome="abort"}} 1\n'
    text += f'{c.TAP_REQUEST_STEPS}{{{BASE},traffic_class="chat",batch_bucket="1"}} 30\n'
    text += f'{c.TAP_REQUEST_STEP_SECONDS}{{{BASE},traffic_class="chat",batch_bucket="1"}} 0.3\n'
    text += f'{c.TAP_SPEC_CONFIG_INFO}{{{BASE},method="ngram",num_speculative_tokens="3"}} 1\n'
    for number, name in enumerate(
        (
            c.TAP_FINISHED_REQUESTS,
            c.TAP_FINISHED_DRAFT_TOKENS,
            c.TAP_FINISHED_ACCEPTED,
            c.TAP_FINISHED_ACCEPTED_SQUARED,
            c.TAP_FINISHED_PRODUCT,
            c.TAP_FINISHED_DRAFT_SQUARED,
        )
    ):
        labels = f'{BASE},traffic_class="chat",num_speculative_tokens="3"'
        text += f"{name}{{{labels}}} {number + 1}\n"
    text += histogram(
        c.TAP_TPOT, f'{BASE},traffic_class="chat",batch_bucket="2-8"', {"0.01": 4, "+Inf": 5}, 0.06
    )
    text += histogram(
        c.TAP_STEP_SECONDS, f'{BASE},batch_bucket="1",num_speculative_tokens="3"', {"+Inf": 5}, 0.06
    )
    return text


def test_the_tap() -> None:
    got = one(tap_page())
    chat, code = got.by_class
    assert (chat.traffic_class, chat.num_speculative_tokens) == ("chat", 3)
    assert chat.spec == SpecCounters(20, 60, 30, (16, 9, 5))
    assert (code.traffic_class, code.num_speculative_tokens) == ("code", None)
    assert code.spec == SpecCounters(20, 60, 40, ())
    assert got.class_output_tokens == {"chat": 70}
    assert got.class_requests == {"chat": 4}
    assert got.method == "ngram"
    (steps,) = got.class_steps
    assert (steps.traffic_class, steps.batch_bucket) == ("chat", "1")
    assert (steps.request_steps, steps.request_step_seconds) == (30, 0.3)
    (finished,) = got.class_finished
    assert (finished.requests, finished.draft_tokens, finished.accepted_tokens) == (1, 2, 3)
    assert (finished.accepted_squared, finished.product, finished.draft_squared) == (4, 5, 6)
    latency = {(x.metric, x.traffic_class, x.batch_bucket): x for x in got.class_latency}
    assert latency[c.TAP_TPOT, "chat", "2-8"].histogram.counts == (4, 5)
    assert latency[c.TAP_STEP_SECONDS, "", "1"].num_speculative_tokens == 3
    assert got.damaged == ()


def test_tap_series_without_an_engine_label() -> None:
    page = tap_page().replace(f'{{{BASE},traffic_class="code"', '{traffic_class="code"')
    assert [x.traffic_class for x in one(page).by_class] == ["chat", "code"]
    page += vllm_page(labels='engine="1",model_name="m"', head=False)
    zero, second = read(page)
    assert [x.traffic_class for x in zero.by_class] == ["chat"]
    assert c.TAP_DRAFTS in zero.damaged
    assert second.by_class == ()


def test_a_damaged_class_is_left_out_and_named() -> None:
    page = tap_page().replace('batch_bucket="1"} 60', 'batch_bucket="1"} NaN')
    got = one(page)
    assert [x.traffic_class for x in got.by_class] == ["chat"]
    assert got.damaged == (c.TAP_DRAFT_TOKENS,)
