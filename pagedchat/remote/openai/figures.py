"""What a server's `/metrics` say, by the names of vLLM, SGLang and llama.cpp: one `ServerFigures`.

Several engines of one server (data parallel ranks, workers behind a router) are added up; of shares the mean is
taken. pagedchat's own endpoint has vLLM's names.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from pagedchat.events import ServerFigures

Join = Callable[[list[float]], float]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


class _Source(NamedTuple):
    field: str
    names: tuple[str, ...]
    """The first of these that is there."""
    join: Join = sum


_SOURCES = (
    _Source("running", ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")),
    _Source("waiting", ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")),
    _Source("cache_usage", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
                            "llamacpp:kv_cache_usage_ratio"), _mean),
    _Source("prefix_queries", ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")),
    _Source("prefix_hits", ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total",
                            "sglang:cached_tokens_total")),
    _Source("hit_rate", ("sglang:cache_hit_rate",), _mean),
    _Source("prompt_tokens", ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total",
                              "llamacpp:prompt_tokens_total")),
    _Source("generated_tokens", ("vllm:generation_tokens_total", "sglang:generation_tokens_total",
                                 "llamacpp:tokens_predicted_total")),
    _Source("preemptions", ("vllm:num_preemptions_total", "sglang:num_retracted_reqs")),
    _Source("tokens_per_second", ("sglang:gen_throughput", "llamacpp:predicted_tokens_seconds")),
)  # fmt: skip
_CONFIG = "vllm:cache_config_info"
_KNOWN = frozenset({name for source in _SOURCES for name in source.names} | {_CONFIG})
_MOST_LINES = 10_000
_MOST = 1e15
"""A figure above it is none."""


def read_figures(text: str) -> ServerFigures:
    """The figures that stand in a text of Prometheus's format; what cannot be read is not there."""
    values: dict[str, list[float]] = {}
    sizes: dict[str, float] = {}
    for sample in _samples(_known_lines(text)):
        if sample.name == _CONFIG:
            sizes = _sizes(sample.labels)
        elif sample.value == sample.value and abs(sample.value) < _MOST:  # a number, and no infinity
            values.setdefault(sample.name, []).append(max(0.0, float(sample.value)))
    found: dict[str, Any] = dict(sizes)
    for field, names, join in _SOURCES:
        told = next((values[name] for name in names if name in values), None)
        if told is not None:
            found[field] = join(told)
    if not found:
        return ServerFigures("Its /metrics have no figures by names of vLLM, SGLang or llama.cpp.")
    return ServerFigures(**found)


def _known_lines(text: str) -> list[str]:
    """Of the hundreds of lines, those that are looked at."""
    lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] in _KNOWN]
    return lines[:_MOST_LINES]


def _samples(lines: Iterable[str]) -> Iterable[Any]:
    for line in lines:
        try:
            families = list(text_string_to_metric_families(line + "\n"))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):  # somebody else's text
            continue
        for family in families:
            yield from family.samples


def _sizes(labels: dict[str, str]) -> dict[str, float]:
    found = {"num_blocks": labels.get("num_gpu_blocks", ""), "block_size": labels.get("block_size", "")}
    numbers = {field: float(text) for field, text in found.items() if text.isascii() and text.isdigit()}
    return {field: number for field, number in numbers.items() if number < _MOST}
