"""What Prometheus gets, read by Prometheus's own parser."""

import socket
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.events import EngineDied, PoolCounts, RequestFinished, RequestStarted, Steps
from pagedchat.metrics.server import MetricsServer
from tests.scripted_reports import ScriptedEngine, pressed, ready, story

LABELS = {"model_name": "tiny/opt", "engine": "0"}
BOARD = (
    "vllm:e2e_request_latency_seconds_bucket", "vllm:e2e_request_latency_seconds_sum",
    "vllm:e2e_request_latency_seconds_count", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
    "vllm:time_per_output_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket",
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:time_to_first_token_seconds_bucket",
    "vllm:kv_cache_usage_perc", "vllm:request_prompt_tokens_bucket", "vllm:request_generation_tokens_bucket",
    "vllm:request_success_total", "vllm:request_queue_time_seconds_sum", "vllm:request_prefill_time_seconds_sum",
    "vllm:request_decode_time_seconds_sum", "vllm:request_max_num_generation_tokens_sum",
    "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total",
    "vllm:iteration_tokens_total_bucket",
)  # fmt: skip
"""Series that the panels of vLLM's Grafana boards ask for."""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    server = MetricsServer(0)
    server.start()
    yield server
    server.close()


def tell(server: MetricsServer, engine: ScriptedEngine) -> None:
    server.fold(ready(engine.core.limits))
    server.fold(Steps(engine.reports))


def read(server: MetricsServer) -> Samples:
    with urllib.request.urlopen(server.url, timeout=5) as response:
        text = response.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset({**LABELS, **labels}.items())]


def test_usage_of_the_cache_is_the_pool_s_share(server: MetricsServer) -> None:
    engine = story()
    tell(server, engine)
    pool = engine.reports[-1].pool
    assert value(read(server), "vllm:kv_cache_usage_perc") == pool.in_use / pool.total


def test_blocks_that_a_limit_withholds_do_not_count_as_free() -> None:
    assert PoolCounts(100, 10, 0, 30, 0, 30, 0, 0, withheld=60).usage == 0.75
    assert PoolCounts(10, 0, 0, 0, 0, 0, 0, 0, withheld=10).usage == 0.0


def test_series_of_vllm_s_boards_are_all_there(server: MetricsServer) -> None:
    tell(server, story())
    server.fold(RequestStarted(1, 1, 370, 0))
    server.fold(RequestFinished(1, 1, "stop", 370, 0, 20, 0.1, 2.0))
    names = {name for name, _ in read(server)}
    assert set(BOARD) <= names


def test_counters_are_the_engine_s(server: MetricsServer) -> None:
    engine = pressed()
    tell(server, engine)
    samples, counters = read(server), engine.reports[-1].counters
    assert counters.preemptions > 0
    assert value(samples, "vllm:num_preemptions_total") == counters.preemptions
    assert value(samples, "vllm:prefix_cache_queries_total") == counters.prefix_queries
    assert value(samples, "pagedchat:blocks_swapped_out_total") == counters.swaps_out
    assert value(samples, "pagedchat:prefill_tokens_total") == counters.prefill_tokens
    assert value(samples, "pagedchat:steps_total") == counters.steps
    generated = sum(len(entry.token_ids) for report in engine.reports for entry in report.batch)
    assert value(samples, "vllm:generation_tokens_total") == generated
    last = engine.reports[-1].queues
    assert value(samples, "vllm:num_requests_running") == last.running
    assert value(samples, "vllm:num_requests_waiting") == last.waiting + last.swapped


def test_blocks_by_state_add_up_and_sharing_is_in_bytes(server: MetricsServer) -> None:
    engine = story()
    tell(server, engine)
    samples, pool = read(server), engine.reports[-1].pool
    states = [value(samples, "pagedchat:blocks", state=state) for state in ("free", "cached", "in_use", "withheld")]
    assert sum(states) == pool.total
    assert value(samples, "pagedchat:blocks_shared") == pool.shared
    assert value(samples, "pagedchat:sharing_saved_bytes") == (pool.table_entries - pool.in_use) * 589_824


def test_time_of_steps_is_given_by_phase(server: MetricsServer) -> None:
    engine = story()
    tell(server, engine)
    forward = sum(report.timings.forward for report in engine.reports)
    assert value(read(server), "pagedchat:step_seconds_total", phase="forward") == pytest.approx(forward)


def test_finished_request_is_counted_once_in_every_histogram(server: MetricsServer) -> None:
    tell(server, story())
    server.fold(RequestStarted(1, 1, 370, 300))
    server.fold(RequestFinished(1, 1, "length", 370, 300, 20, 0.07, 2.0))
    samples = read(server)
    assert value(samples, "vllm:request_success_total", finished_reason="length") == 1
    assert value(samples, "vllm:prompt_tokens_total") == 370
    assert value(samples, "vllm:time_to_first_token_seconds_bucket", le="0.06") == 0
    assert value(samples, "vllm:time_to_first_token_seconds_bucket", le="0.08") == 1
    assert value(samples, "vllm:e2e_request_latency_seconds_sum") == 2.0
    assert value(samples, "vllm:request_generation_tokens_sum") == 20
    mean = value(samples, "vllm:request_time_per_output_token_seconds_sum")
    assert mean == pytest.approx((2.0 - 0.07) / 19)


def test_request_without_a_token_has_no_time_to_the_first(server: MetricsServer) -> None:
    tell(server, story())
    server.fold(RequestFinished(1, 1, "abort", 370, 0, 0, 1.0, 1.0))
    samples = read(server)
    assert value(samples, "vllm:time_to_first_token_seconds_count") == 0
    assert value(samples, "vllm:request_success_total", finished_reason="abort") == 1


def test_before_the_engine_is_ready_it_is_down_and_nothing_else(server: MetricsServer) -> None:
    assert read(server) == {("pagedchat:engine_up", frozenset()): 0.0}


def test_totals_go_on_after_the_engine_died_and_gauges_do_not(server: MetricsServer) -> None:
    engine = story()
    tell(server, engine)
    server.fold(EngineDied(-9, "", True))
    samples = read(server)
    assert samples["pagedchat:engine_up", frozenset()] == 0.0
    assert ("vllm:kv_cache_usage_perc", frozenset(LABELS.items())) not in samples
    tell(server, engine)
    steps = engine.reports[-1].counters.steps
    assert value(read(server), "pagedchat:steps_total") == 2 * steps
    assert value(read(server), "pagedchat:engine_deaths_total") == 1


def test_ready_engine_without_a_report_has_an_empty_pool(server: MetricsServer) -> None:
    server.fold(ready(story().core.limits))
    assert value(read(server), "vllm:kv_cache_usage_perc") == 0
    assert value(read(server), "pagedchat:blocks", state="free") == 256


def test_metrics_are_for_this_machine_alone(server: MetricsServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")


def test_port_in_use_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PagedChatError, match=f"port {port}: address already in use") as caught:
            MetricsServer(port).start()
    assert "--metrics-port 0" in caught.value.hint


@pytest.mark.parametrize("port", [-1, 65_536])
def test_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(InvalidValueError, match="There is no port"):
        MetricsServer(port)


def test_nobody_is_answered_after_close() -> None:
    server = MetricsServer(0)
    server.start()
    url = server.url
    server.close()
    server.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)
