"""The host's part of a step: schedule, update and report, with a model that answers at once."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from pagedchat.bench.table import percentile
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams

_VOCAB_SIZE = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHostResult:
    """Milliseconds of one step, over `num_steps` steps that each decode one token of every sequence."""

    num_sequences: int
    num_steps: int
    prompt_tokens: int
    median_ms: float
    p99_ms: float
    max_ms: float


class InstantRunner:
    """A model runner without a model: every sequence that samples gets the same token."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """One token for each sequence that samples."""
        return ModelRunnerOutput([[7] if item.samples else [] for item in batch.scheduled])

    def check(self) -> None:
        """It never breaks."""


def measure_step_host(
    num_sequences: int = 256,
    num_steps: int = 1000,
    prompt_tokens: int = 128,
    clock: Callable[[], float] = time.perf_counter,
) -> StepHostResult:
    """Decode `num_sequences` sequences together and time every step, prefix caching on."""
    max_tokens = num_steps + num_sequences  # the first sequences decode while the last are still prefilled
    core = _engine(num_sequences, prompt_tokens + max_tokens)
    _start(core, num_sequences, prompt_tokens, max_tokens)
    seconds = [_time_step(core, clock) for _ in range(num_steps)]
    milliseconds = [1000 * value for value in seconds]
    return StepHostResult(
        num_sequences=num_sequences,
        num_steps=num_steps,
        prompt_tokens=prompt_tokens,
        median_ms=round(median(milliseconds), 4),
        p99_ms=round(percentile(milliseconds, 99), 4),
        max_ms=round(max(milliseconds), 4),
    )


def _engine(num_sequences: int, length: int) -> EngineCore:
    blocks_each = length // 16 + 2
    limits = EngineLimits(
        num_blocks=num_sequences * blocks_each,
        model_len=length + 16,
        max_num_seqs=num_sequences,
        max_num_batched_tokens=max(2048, num_sequences),
    )
    return EngineCore(limits, InstantRunner())


def _start(core: EngineCore, num_sequences: int, prompt_tokens: int, max_tokens: int) -> None:
    """Prefill every sequence, each with a prompt of its own, so that all that is left is to decode."""
    tokens = random.Random(0)  # noqa: S311 - any tokens will do
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    for seq_id in range(num_sequences):
        core.open(seq_id)
        core.extend(seq_id, tokens.choices(range(_VOCAB_SIZE), k=prompt_tokens), params)
    while any(seq.num_uncomputed > 1 for seq in core.sequences.values()):
        core.step()


def _time_step(core: EngineCore, clock: Callable[[], float]) -> float:
    started = clock()
    core.step()
    return clock() - started
