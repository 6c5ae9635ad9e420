"""`/metrics` of vLLM, SGLang and llama.cpp, and of whoever sends something else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.events import ServerFigures
from pagedchat.metrics.exposition import Exposition
from pagedchat.remote.openai.figures import read_figures
from tests.fakes_tui import READY
from tests.misbehaving_server import VLLM_METRICS

SGLANG = """\
sglang:num_running_reqs{model_name="m"} 7
sglang:num_queue_reqs{model_name="m"} 2
sglang:token_usage{model_name="m"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.75
sglang:gen_throughput{model_name="m"} 412.5
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
"""
LLAMA = """\
llamacpp:prompt_tokens_total 100
llamacpp:tokens_predicted_total 50
llamacpp:predicted_tokens_seconds 12.5
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
"""


def test_vllms_engines_are_added_up_and_shares_averaged():
    figures = read_figures(VLLM_METRICS)
    assert (figures.running, figures.waiting, figures.preemptions) == (5, 1, 4)
    assert figures.cache_usage == pytest.approx(0.3)
    assert (figures.prefix_hits, figures.prefix_queries) == (640, 1000)
    assert (figures.num_blocks, figures.block_size) == (27504, 16)
    assert read_figures('vllm:gpu_cache_usage_perc{x="1"} 0.5').cache_usage == 0.5


def test_sglang_and_llama_cpp_by_their_names_and_what_they_lack_is_none():
    sglang = read_figures(SGLANG)
    assert (sglang.running, sglang.waiting, sglang.hit_rate, sglang.tokens_per_second) == (7, 2, 0.75, 412.5)
    assert (sglang.prefix_queries, sglang.num_blocks) == (None, None)
    llama = read_figures(LLAMA)
    assert (llama.running, llama.waiting, llama.generated_tokens, llama.cache_usage) == (1, 0, 50, None)


def test_our_own_are_read_too():
    exposition = Exposition()
    exposition.fold(READY)
    figures = read_figures(exposition.text().decode())
    assert (figures.running, figures.waiting, figures.cache_usage) == (0, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "go_goroutines 12",
        "<html>no metrics</html>",
        "vllm:num_requests_running{",
        "vllm:num_requests_running NaN",
        'vllm:num_requests_running{a="b} 1',
        "vllm:num_requests_running 1e999",
        "vllm:cache_config_info{block_size=1} 1",
    ],
)
def test_what_is_no_figure_is_none(text):
    figures = read_figures(text)
    assert figures.problem
    assert figures == ServerFigures(figures.problem)


@given(st.lists(st.sampled_from(["vllm:num_requests_running", "{", "}", "=", '"', " ", "1", "\\", "\n", "#", "é"])))
def test_no_text_is_too_strange(parts):
    read_figures("".join(parts))


def test_a_size_that_no_cache_has_is_none():
    text = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="%s"} 1.0\nvllm:num_requests_running 2\n'
    assert read_figures(text % 400).num_blocks == 400
    figures = read_figures(text % ("9" * 400))
    assert (figures.num_blocks, figures.block_size, figures.running) == (None, 16, 2)
