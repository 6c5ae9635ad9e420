"""The engine's events folded into what metrics are made of. Knows no Prometheus, no metric's name, no threads."""

import math
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from pagedchat.events import (
    Counters,
    EngineDied,
    EngineEvent,
    EngineReady,
    RequestFinished,
    RequestStarted,
    StepReport,
    Steps,
    Timings,
)
from pagedchat.metrics.histogram import (
    ITERATION_TOKENS,
    LATENCY,
    TIME_PER_TOKEN,
    TIME_TO_FIRST_TOKEN,
    Histogram,
    one_two_five,
)
from pagedchat.metrics.phases import PhaseClock, PhaseTimes
from pagedchat.metrics.token_rate import TokenRate
from pagedchat.step_batch import Batch, DecodeBatch

_DEFAULT_LENGTH = 2048
PHASES = tuple(name for name in Timings.__struct_fields__ if name != "attention")
"""The parts of a step that together are the whole of it."""


@dataclass(slots=True)
class Histograms:
    """Everything of which not only the sum counts."""

    max_model_len: int = _DEFAULT_LENGTH
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(TIME_TO_FIRST_TOKEN))
    inter_token: Histogram = field(default_factory=lambda: Histogram(TIME_PER_TOKEN))
    request_per_token: Histogram = field(default_factory=lambda: Histogram(TIME_PER_TOKEN))
    latency: Histogram = field(default_factory=lambda: Histogram(LATENCY))
    queued: Histogram = field(default_factory=lambda: Histogram(LATENCY))
    prefill: Histogram = field(default_factory=lambda: Histogram(LATENCY))
    decode: Histogram = field(default_factory=lambda: Histogram(LATENCY))
    inference: Histogram = field(default_factory=lambda: Histogram(LATENCY))
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(ITERATION_TOKENS))
    prompt_tokens: Histogram = field(init=False)
    generation_tokens: Histogram = field(init=False)

    def __post_init__(self) -> None:
        bounds = one_two_five(self.max_model_len)
        self.prompt_tokens, self.generation_tokens = Histogram(bounds), Histogram(bounds)


class MetricsFold:
    """Totals since the program started; those of an engine that died are kept.

    `fold` costs O(a report's batch and events). Everything here is read by plain attributes.
    """

    def __init__(self) -> None:
        self.info: EngineReady | None = None
        """The engine that runs; None while there is none."""
        self.model = ""
        """Its model's name, kept after its death."""
        self.last: StepReport | None = None
        """The last report of the running engine."""
        self.histograms = Histograms()
        self.prompt_tokens = 0
        """Tokens of all prompts, whether computed or found in the cache."""
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        """Requests that ended, by reason."""
        self.deaths = 0
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)
        self.rate = TokenRate()
        """Of the engine that runs."""
        self.last_batch = 0
        """Sequences in its last step."""
        self._before = Counters()
        """Counters of the engines that died, added up."""
        self._phases = PhaseClock()

    @property
    def counters(self) -> Counters:
        """The engine's counters, on top of those of engines before it."""
        return self._before if self.last is None else _added(self._before, self.last.counters)

    def fold(self, event: EngineEvent) -> None:
        """Take in the next event; those that say nothing about work change nothing."""
        match event:
            case Steps(reports=reports):
                for report in reports:
                    self._fold_report(report)
            case RequestStarted():
                self.prompt_tokens += event.num_prompt_tokens
            case RequestFinished():
                self._fold_finished(event)
            case EngineReady():
                self._fold_ready(event)
            case EngineDied():
                self._before, self.last, self.info = self.counters, None, None
                self._phases = PhaseClock()
                self.deaths += 1

    def _fold_ready(self, info: EngineReady) -> None:
        if info.max_model_len != self.histograms.max_model_len and not self.model:
            self.histograms = Histograms(info.max_model_len)
        self.info, self.model = info, info.model
        self.rate, self.last_batch = TokenRate(), 0

    def _fold_report(self, report: StepReport) -> None:
        self.last = report
        self._phases.fold(report)
        for gap, times in self._phases.gaps.items():
            self.histograms.inter_token.add(gap, times)
        for phases in self._phases.finished:
            self._add_phases(phases)
        if report.batch:
            self._fold_step(report)

    def _fold_step(self, report: StepReport) -> None:
        num_tokens, num_computed = _sizes(report.batch)
        self.generation_tokens += num_tokens
        self.rate.add(report.time - report.timings.total, report.time, num_tokens)
        self.last_batch = len(report.batch)
        self.histograms.iteration_tokens.add(num_computed)
        for phase in PHASES:
            self.phase_seconds[phase] += getattr(report.timings, phase)

    def _add_phases(self, phases: PhaseTimes) -> None:
        self.histograms.queued.add(phases.queued)
        self.histograms.prefill.add(phases.prefill)
        self.histograms.decode.add(phases.decode)
        self.histograms.inference.add(phases.inference)

    def _fold_finished(self, event: RequestFinished) -> None:
        self.finished[event.reason] += 1
        self.histograms.latency.add(event.duration)
        self.histograms.prompt_tokens.add(event.num_prompt_tokens)
        self.histograms.generation_tokens.add(event.num_tokens)
        if math.isnan(event.time_to_first_token):
            return
        if event.num_tokens:
            self.histograms.time_to_first_token.add(event.time_to_first_token)
        if event.num_tokens > 1:
            per_token = (event.duration - event.time_to_first_token) / (event.num_tokens - 1)
            self.histograms.request_per_token.add(per_token)


def _sizes(batch: Batch) -> tuple[int, int]:
    """Tokens that were sampled, and that were computed."""
    if type(batch) is DecodeBatch:
        return len(batch), len(batch)
    return sum(len(entry.token_ids) for entry in batch), sum(
        entry.num_prefill + entry.num_decode for entry in batch
    )


def _added(one: Counters, other: Counters) -> Counters:
    return Counters(*map(sum, zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)))
