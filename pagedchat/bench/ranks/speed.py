"""Tokens a second of a model on so many ranks. Knows the engine as a library."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.engines import OurEngine
from pagedchat.bench.engine.measures import Meter
from pagedchat.bench.engine.workloads import DecodeWork, Prompts
from pagedchat.config import EngineConfig
from pagedchat.distributed.joining import shares_gpu

_MEMORY_SHARE = 0.6
"""Of each GPU."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What came out for so many chats on so many ranks."""

    size: int
    chats: int
    step_ms: float
    """Of a decode step, the median."""
    runs_ms: list[float]

    @property
    def name(self) -> str:
        """For people."""
        chats = "1 chat" if self.chats == 1 else f"{self.chats} chats"
        return f"{chats}, {ranks_in_words(self.size)}"

    @property
    def tokens_per_second(self) -> float:
        """Of all chats, after their first tokens."""
        return 1e3 * self.chats / self.step_ms


def ranks_in_words(size: int) -> str:
    """How many."""
    return "1 rank" if size == 1 else f"{size} ranks"


def measure_speed(
    config: EngineConfig, size: int, args: argparse.Namespace, say: Callable[[str], None]
) -> list[Speed]:
    """Load the model on `size` ranks and have it reply.

    Args:
        config: which model, where.
        size: ranks.
        args: `chats`, `prompt_tokens`, `new_tokens`, `repeats`.
        say: told of every figure.

    Raises:
        PagedChatError: what the engine refuses; a rank that is lost.
    """
    model, speeds = config.model, []
    say(f"{ranks_in_words(size)}: loading")
    with LLM(
        model.model,
        device=model.device,
        dtype=model.dtype,
        tensor_parallel_size=size,
        skip_tokenizer_init=True,
        gpu_memory_utilization=_MEMORY_SHARE / size if shares_gpu() else _MEMORY_SHARE,
        max_num_seqs=max(args.chats),
    ) as llm:
        meter = Meter(OurEngine(llm), Prompts(llm.info.vocab_size), args.repeats)
        for chats in args.chats:
            figure = meter.step(f"step_{chats}_ms", _work(chats, args))
            speeds.append(Speed(size, chats, figure.value, figure.runs))
            say(f"{speeds[-1].name}: {figure.value:.3f} ms a step")
    return speeds


def _work(chats: int, args: argparse.Namespace) -> DecodeWork:
    return DecodeWork(num_chats=chats, prompt_tokens=args.prompt_tokens, new_tokens=args.new_tokens)
