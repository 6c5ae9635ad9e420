"""The folded metrics as Prometheus families: vLLM's names where vLLM has the figure, ours where it has not.

Knows names, help texts and labels; counts nothing itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pagedchat.events import EngineReady, PoolCounts, QueueLengths
from pagedchat.metrics.fold import MetricsFold
from pagedchat.metrics.histogram import Histogram

ENGINE = "0"
"""vLLM numbers its engines; here there is one."""
LABELS = ("model_name", "engine")


@dataclass(frozen=True, slots=True)
class Families:
    """Makes the families of one model, with the labels that vLLM puts on all of them."""

    model: str

    @property
    def _labels(self) -> list[str]:
        return [self.model, ENGINE]

    def gauge(self, name: str, text: str, value: float) -> Metric:
        """What goes up and down."""
        family = GaugeMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def gauges(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """The same, told apart by one more label."""
        family = GaugeMetricFamily(name, text, labels=[*LABELS, label])
        for key, value in values.items():
            family.add_metric([*self._labels, key], value)
        return family

    def counter(self, name: str, text: str, value: float) -> Metric:
        """What only goes up; `_total` is appended to its name."""
        family = CounterMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def counters(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """The same, told apart by one more label."""
        family = CounterMetricFamily(name, text, labels=[*LABELS, label])
        for key, value in values.items():
            family.add_metric([*self._labels, key], value)
        return family

    def histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        """How often which values occurred."""
        family = HistogramMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, [_bucket(*range_) for range_ in histogram.cumulative()], histogram.total)
        return family


def _bucket(bound: float, count: int) -> tuple[str, float]:
    return ("+Inf" if bound == float("inf") else str(bound), count)


class MetricsCollector(Collector):
    """Reads a `MetricsFold` whenever it is asked; `lock` keeps events from being folded meanwhile.

    Before the first engine is ready there is nothing to say but that none is up.
    """

    def __init__(self, fold: MetricsFold, lock: Lock) -> None:
        self._fold = fold
        self._lock = lock

    def collect(self) -> list[Metric]:
        """All families, as of now."""
        with self._lock:
            up = GaugeMetricFamily("pagedchat:engine_up", "Whether an engine is running.")
            up.add_metric([], float(self._fold.info is not None))
            return [up, *self._families()] if self._fold.model else [up]

    @property
    def _make(self) -> Families:
        return Families(self._fold.model)

    def _families(self) -> Iterator[Metric]:
        if self._fold.info is not None:
            yield from self._now(self._fold.info)
        yield from self._counters()
        yield from self._request_counters()
        yield from self._histograms()

    # --- the engine now -----------------------------------------------------------------------------

    def _now(self, info: EngineReady) -> Iterator[Metric]:
        last = self._fold.last
        queues = last.queues if last else QueueLengths(0, 0, 0, 0)
        pool = (
            last.pool if last else PoolCounts(info.num_blocks, info.num_blocks, 0, 0, 0, 0, info.num_host_blocks, 0)
        )
        waiting = queues.waiting + queues.swapped
        yield self._make.gauge("vllm:num_requests_running", "Sequences that take part in steps.", queues.running)
        yield self._make.gauge(
            "vllm:num_requests_waiting", "Sequences that wait to, swapped ones included.", waiting
        )
        yield self._make.gauge(
            "vllm:kv_cache_usage_perc", "Share in use of the blocks that a limit leaves, 0 to 1.", pool.usage
        )
        yield self._make.gauge("pagedchat:num_requests_swapped", "Sequences in host memory.", queues.swapped)
        yield self._make.gauge(
            "pagedchat:num_sequences_parked", "Idle chats that keep their blocks.", queues.parked
        )
        yield from self._pool(pool, info.block_bytes)

    def _pool(self, pool: PoolCounts, block_bytes: int) -> Iterator[Metric]:
        states = {"free": pool.free, "cached": pool.cached, "in_use": pool.in_use, "withheld": pool.withheld}
        yield self._make.gauges("pagedchat:blocks", "Blocks of the pool by state.", "state", states)
        saved = (pool.table_entries - pool.in_use) * block_bytes
        yield self._make.gauge("pagedchat:blocks_shared", "Blocks with two owners or more.", pool.shared)
        yield self._make.gauge("pagedchat:blocks_pinned", "Blocks that are not evicted.", pool.pinned)
        yield self._make.gauge("pagedchat:sharing_saved_bytes", "Memory that sharing blocks saves.", saved)
        yield self._make.gauge("pagedchat:host_blocks_in_use", "Blocks in host memory.", pool.host_in_use)

    # --- totals -------------------------------------------------------------------------------------

    def _counters(self) -> Iterator[Metric]:
        counters = self._fold.counters
        yield self._make.counter(
            "vllm:prefix_cache_queries", "Tokens looked up in the prefix cache.", counters.prefix_queries
        )
        yield self._make.counter("vllm:prefix_cache_hits", "Of those, tokens found.", counters.prefix_hits)
        yield self._make.counter(
            "pagedchat:prompt_tokens_kept", "Prompt tokens that chats still had from before.", counters.kept_tokens
        )
        yield self._make.counter(
            "vllm:num_preemptions", "Times that a sequence, running or not, lost its blocks.", counters.preemptions
        )
        yield self._make.counter(
            "vllm:spec_decode_num_drafts", "Times that tokens of a sequence were guessed.", counters.drafts
        )
        yield self._make.counter(
            "vllm:spec_decode_num_draft_tokens", "Tokens guessed and verified.", counters.draft_tokens
        )
        yield self._make.counter(
            "vllm:spec_decode_num_accepted_tokens", "Of those, tokens that held.", counters.accepted_tokens
        )
        yield self._make.counter("pagedchat:steps", "Steps that ran.", counters.steps)
        yield self._make.counter("pagedchat:blocks_copied", "Blocks copied on write.", counters.copies)
        yield self._make.counter("pagedchat:blocks_evicted", "Cached blocks made free.", counters.evictions)
        yield self._make.counter(
            "pagedchat:blocks_swapped_out", "Blocks copied to host memory.", counters.swaps_out
        )
        yield self._make.counter("pagedchat:blocks_swapped_in", "Blocks copied back.", counters.swaps_in)
        yield self._make.counter("pagedchat:prefill_tokens", "Prompt tokens computed.", counters.prefill_tokens)
        yield self._make.counter(
            "pagedchat:engine_deaths", "Times that the engine process died.", self._fold.deaths
        )
        seconds = self._fold.phase_seconds
        yield self._make.counters("pagedchat:step_seconds", "Time that steps took, by phase.", "phase", seconds)

    def _request_counters(self) -> Iterator[Metric]:
        fold = self._fold
        yield self._make.counter(
            "vllm:prompt_tokens", "Tokens of prompts, cached ones included.", fold.prompt_tokens
        )
        yield self._make.counter("vllm:generation_tokens", "Tokens generated.", fold.generation_tokens)
        reasons = fold.finished
        yield self._make.counters("vllm:request_success", "Requests that ended.", "finished_reason", reasons)

    def _histograms(self) -> Iterator[Metric]:
        of = self._fold.histograms
        named = {
            "vllm:time_to_first_token_seconds": ("From asking to the first token.", of.time_to_first_token),
            "vllm:inter_token_latency_seconds": ("Between two tokens of a sequence.", of.inter_token),
            "vllm:time_per_output_token_seconds": ("The same by its older name.", of.inter_token),
            "vllm:request_time_per_output_token_seconds": ("Mean of a request.", of.request_per_token),
            "vllm:e2e_request_latency_seconds": ("From asking to the end.", of.latency),
            "vllm:request_queue_time_seconds": ("Waiting for the first step.", of.queued),
            "vllm:request_prefill_time_seconds": ("From the first step to the first token.", of.prefill),
            "vllm:request_decode_time_seconds": ("From the first token to the last.", of.decode),
            "vllm:request_inference_time_seconds": ("From the first step to the last token.", of.inference),
            "vllm:request_prompt_tokens": ("Tokens of a prompt.", of.prompt_tokens),
            "vllm:request_generation_tokens": ("Tokens of a reply.", of.generation_tokens),
            "vllm:request_max_num_generation_tokens": ("Longest of a request's replies.", of.generation_tokens),
            "vllm:iteration_tokens_total": ("Tokens computed in a step.", of.iteration_tokens),
        }
        for name, (text, histogram) in named.items():
            yield self._make.histogram(name, text, histogram)
