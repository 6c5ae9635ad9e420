"""Many chats at once on a pool for few: everybody waits for their turn, and has it."""

import os
import random
import time
from dataclasses import dataclass

from pagedchat.api.engine import LLMEngine
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, PreemptionMode, SchedulerConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.errors import IntegrityError
from pagedchat.requests.prompts import TokensPrompt
from pagedchat.runtime.loading.build import load_model
from pagedchat.units import format_size
from tools.soak.memory import middle, no_blocks_left, resident

MODES: tuple[PreemptionMode, ...] = ("recompute", "swap")
BLOCK_SIZE = 16
BLOCKS_OF_A_CHAT = 8
"""At its end; a little less on average."""
REPLY_TOKENS = 48
_PROMPT_TOKENS = (BLOCK_SIZE, BLOCKS_OF_A_CHAT * BLOCK_SIZE - REPLY_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOutcome:
    """How long they waited, and what it took."""

    num_chats: int
    num_blocks: int
    mode: PreemptionMode
    steps: int
    seconds: float
    waits: list[tuple[int, float]]
    """Of each chat: steps and seconds until its first token."""
    preemptions: int
    peak: int
    """Bytes of resident memory, at most."""
    before: int
    """The same with the model loaded and nothing asked."""

    def lines(self) -> list[str]:
        """For people."""
        steps, seconds = [wait[0] for wait in self.waits], [wait[1] for wait in self.waits]
        return [
            f"{self.num_chats} chats on {self.num_blocks} blocks, {self.mode}: all finished after {self.steps:,} "
            f"steps ({self.seconds:.1f} s), {self.preemptions:,} preemptions, nothing is held",
            f"  wait for the first token: worst {max(steps):,} steps ({max(seconds):.1f} s), "
            f"median {middle(steps):,.0f} steps ({middle(seconds):.1f} s)",
            f"  memory: {format_size(self.before)} before, at most {format_size(self.peak)}",
        ]


def run_queue(model: str, num_chats: int, num_at_once: int, mode: PreemptionMode) -> QueueOutcome:
    """All chats ask in the same moment.

    Args:
        model: a folder with a checkpoint.
        num_chats: how many ask.
        num_at_once: how many the pool holds, about.
        mode: how blocks are taken back.

    Raises:
        IntegrityError: a reply has another length than was asked for, or something is held at the end.
    """
    config = EngineConfig(
        model=ModelConfig(model=model, device="cpu"),
        cache=CacheConfig(block_size=BLOCK_SIZE, num_blocks=num_at_once * BLOCKS_OF_A_CHAT, swap_space=1 << 24),
        scheduler=SchedulerConfig(preemption_mode=mode),
    )
    loaded = load_model(config)
    core = EngineCore(loaded.limits, loaded.runner)
    engine = LLMEngine.from_loaded(loaded, core)
    before = peak = resident(os.getpid())
    draw = random.Random(0)  # noqa: S311 - not for secrets
    params = SamplingParams(max_tokens=REPLY_TOKENS, ignore_eos=True, output_kind=RequestOutputKind.DELTA)
    for number in range(num_chats):
        engine.add_request(str(number), _prompt(draw, loaded.info.vocab_size), params)
    waits: dict[str, tuple[int, float]] = {}
    lengths = dict.fromkeys(map(str, range(num_chats)), 0)
    began, steps = time.perf_counter(), 0
    while engine.has_unfinished_requests():
        outputs = engine.step()
        steps += 1
        for output in outputs:
            waits.setdefault(output.request_id, (steps, time.perf_counter() - began))
            lengths[output.request_id] += len(output.outputs[0].token_ids)
        if steps % 50 == 0:
            peak = max(peak, resident(os.getpid()))
    _check(core, lengths)
    return QueueOutcome(
        num_chats=num_chats,
        num_blocks=loaded.limits.num_blocks,
        mode=mode,
        steps=steps,
        seconds=time.perf_counter() - began,
        waits=list(waits.values()),
        preemptions=core.stats().preemptions,
        peak=max(peak, resident(os.getpid())),
        before=before,
    )


def _prompt(draw: random.Random, vocab_size: int) -> TokensPrompt:
    return TokensPrompt(prompt_token_ids=draw.choices(range(3, vocab_size), k=draw.randint(*_PROMPT_TOKENS)))


def _check(core: EngineCore, lengths: dict[str, int]) -> None:
    wrong = {name: length for name, length in lengths.items() if length != REPLY_TOKENS}
    if wrong:
        raise IntegrityError(f"replies of another length than {REPLY_TOKENS}: {wrong}")
    check_idle(core)


def check_idle(core: EngineCore) -> None:
    """All requests are over: the books are right and nothing is held.

    Raises:
        IntegrityError: they are not, or something is.
    """
    core.check_integrity()
    if core.watch.violation is not None:
        raise IntegrityError(core.watch.violation)
    stats = core.stats()
    no_blocks_left(stats.blocks_in_use, stats.host_blocks_in_use, len(core.sequences))
