"""Thousands of prompts in one queue on a handful of blocks: all are answered, as they would be alone."""

import os
import random
import time
from collections import Counter
from dataclasses import dataclass

from pagedchat.api.engine import LLMEngine
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.errors import IntegrityError
from pagedchat.requests.prompts import TokensPrompt
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.loaded import LoadedModel
from pagedchat.units import format_size
from tools.soak.memory import resident
from tools.soak.queued import check_idle
from tools.soak.tables import grown, table_sizes

NUM_PREFIXES = 5
NUM_ALONE = 40
"""Of so many prompts the reply is held against that of an engine which has nothing else to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsOutcome:
    """What it took and what is left."""

    num_prompts: int
    num_blocks: int
    steps: int
    seconds: float
    found: float
    """Share of the prompts' tokens that was in the prefix cache."""
    preemptions: int
    before: int
    """Bytes of resident memory after as many prompts as make the tables full."""
    queued: int
    """The same with all prompts in the queue."""
    peak: int
    after: int
    tables: Counter[str]
    """When all was over: entries of each."""
    grown: dict[str, tuple[int, int]]
    """Tables with more entries when all was over than before, by more than the tokens that the pool holds: there
    should be none."""

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            f"{self.num_prompts:,} prompts at once on {self.num_blocks} blocks: all answered after {self.steps:,} "
            f"steps ({self.seconds:.1f} s), {self.preemptions:,} preemptions, {self.found:.0%} of tokens found; "
            "nothing is held, and a sample of the replies is as alone",
            f"  memory: {format_size(self.before)} before, {format_size(self.queued)} with all in the queue, "
            f"at most {format_size(self.peak)}, {format_size(self.after)} after",
            f"  tables that grew: {self.grown or 'none'}; the largest when all is over:",
        ]
        return lines + [f"    {size:>8,}  {name}" for name, size in self.tables.most_common(12)]


def run_prompts(model: str, num_prompts: int, num_blocks: int) -> PromptsOutcome:
    """All prompts are asked in the same moment, after a tenth of them for a start.

    Args:
        model: a folder with a checkpoint.
        num_prompts: how many.
        num_blocks: of 16 tokens.

    Raises:
        IntegrityError: a reply is another than alone, or something is held at the end.
    """
    config = EngineConfig(
        model=ModelConfig(model=model, device="cpu"), cache=CacheConfig(num_blocks=num_blocks, swap_space=0)
    )
    loaded = load_model(config)
    core = EngineCore(loaded.limits, loaded.runner)
    engine = LLMEngine.from_loaded(loaded, core)
    asked = _Prompts(random.Random(0), loaded.info.vocab_size)  # noqa: S311 - not for secrets
    _answer(engine, [asked.draw() for _ in range(num_prompts // 10)])
    tables_before, before, steps_before = table_sizes([engine]), resident(os.getpid()), core.stats().steps
    drawn = [asked.draw() for _ in range(num_prompts)]
    began = time.perf_counter()
    replies, queued, peak = _answer(engine, drawn)
    seconds = time.perf_counter() - began
    check_idle(core)
    _compare(loaded, drawn, replies)
    stats, tables = core.stats(), table_sizes([engine])
    return PromptsOutcome(
        num_prompts=num_prompts,
        num_blocks=num_blocks,
        steps=stats.steps - steps_before,
        seconds=seconds,
        found=stats.prefix_hits / stats.prefix_queries,
        preemptions=stats.preemptions,
        before=before,
        queued=queued,
        peak=peak,
        after=resident(os.getpid()),
        tables=tables,
        grown=grown(tables_before, tables, by=core.limits.max_len),
    )


Drawn = tuple[TokensPrompt, SamplingParams]


class _Prompts:
    """Short ones of mixed lengths; two of three begin as others do."""

    def __init__(self, draw: random.Random, vocab_size: int) -> None:
        self._draw = draw
        self._vocab = range(3, vocab_size)
        self._prefixes = [self._tokens(20, 50) for _ in range(NUM_PREFIXES)]

    def draw(self) -> Drawn:
        """The next."""
        draw = self._draw
        tokens = (draw.choice(self._prefixes) if draw.random() < 2 / 3 else []) + self._tokens(1, 30)
        params = SamplingParams(
            temperature=draw.choice((0.0, 1.0)), seed=draw.randrange(2**32), max_tokens=draw.randint(1, 12)
        )
        return TokensPrompt(prompt_token_ids=tokens), params

    def _tokens(self, least: int, most: int) -> list[int]:
        return self._draw.choices(self._vocab, k=self._draw.randint(least, most))


def _answer(engine: LLMEngine, drawn: list[Drawn]) -> tuple[list[list[int]], int, int]:
    """The replies in order; memory with all in the queue, and at most."""
    replies: dict[str, list[int]] = {}
    for number, (prompt, params) in enumerate(drawn):
        engine.add_request(str(number), prompt, params, output_kind=RequestOutputKind.FINAL_ONLY)
    queued = peak = resident(os.getpid())
    steps = 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            replies[output.request_id] = output.outputs[0].token_ids
        steps += 1
        if steps % 200 == 0:
            peak = max(peak, resident(os.getpid()))
    return [replies[str(number)] for number in range(len(drawn))], queued, peak


def _compare(loaded: LoadedModel, drawn: list[Drawn], replies: list[list[int]]) -> None:
    for number in range(0, len(drawn), max(1, len(drawn) // NUM_ALONE)):
        alone, _, _ = _answer(LLMEngine.from_loaded(loaded), [drawn[number]])
        if alone != [replies[number]]:
            raise IntegrityError(f"prompt {number} was answered {replies[number]}, but alone {alone[0]}")
