"""The shapes of real models on our engine: a step of few and of many chats, a crowd, first tokens.

Each against the time to read its weights once, which is the least that a step of one chat can take.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.engines import OurEngine
from pagedchat.bench.engine.measures import UNCOUNTED, Figure, Meter
from pagedchat.bench.engine.shapes import (
    LONG_CHAT,
    LONG_PROMPT,
    NEXT_TURN,
    NUM_DRAWN,
    SHAPES,
    STEPS,
    CrowdWork,
    bytes_read,
)
from pagedchat.bench.engine.workloads import Prompts, Tokens
from pagedchat.bench.random_checkpoint import write_checkpoint
from pagedchat.config import DType
from pagedchat.engine.sampling_params import SamplingParams

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of the system; the file's own folder is a private one in it
_MEMORY_SHARE = 0.6
"""Of the GPU, as the stored peers had it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFigures:
    """What came out for one shape."""

    name: str
    dtype: str
    weight_bytes: int
    """What a token of one chat has to read of the weights."""
    copy_gb_s: float
    """Bandwidth of a copy in the same run, read and written."""
    figures: list[Figure]

    @property
    def read_ms(self) -> float:
        """The time to read the weights once at that bandwidth."""
        return self.weight_bytes / self.copy_gb_s / 1e6


def measure_shape(
    name: str, dtype: DType, repeats: int, copy_gb_s: float, say: Callable[[str], None]
) -> ShapeFigures:
    """Draw the weights on the GPU and run everything.

    Args:
        name: of `SHAPES`.
        dtype: of weights and cache, a type of 16 bits.
        repeats: runs that count.
        copy_gb_s: of this GPU, measured in this run.
        say: told of every figure.

    Raises:
        PagedChatError: what the engine refuses.
    """
    shape, kind = SHAPES[name], getattr(torch, dtype)
    with tempfile.TemporaryDirectory(
        prefix="pagedchat-bench-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None
    ) as folder:
        weight_bytes = write_checkpoint(Path(folder), shape, kind, torch.device("cuda"))
        torch.cuda.empty_cache()
        llm = LLM(folder, device="cuda", skip_tokenizer_init=True, gpu_memory_utilization=_MEMORY_SHARE)
    with llm:
        meter = Meter(OurEngine(llm), Prompts(shape["vocab_size"]), repeats)
        figures = run_shape(meter, OurEngine(llm), lambda figure: say(f"{name}: {figure}"))
    return ShapeFigures(
        name=name,
        dtype=dtype,
        weight_bytes=bytes_read(weight_bytes, shape, kind.itemsize),
        copy_gb_s=copy_gb_s,
        figures=figures,
    )


def run_shape(meter: Meter, engine: OurEngine, say: Callable[[Figure], None]) -> list[Figure]:
    """All rows of one engine.

    Args:
        meter: over the engine.
        engine: the same, where tokens are drawn or lengths differ.
        say: told of each.
    """
    figures = []
    for row, work in STEPS.items():
        figures.append(meter.step(row, work))
        say(figures[-1])
    first = meter.again(("first_1500_ms", "first_1500_again_ms"), LONG_PROMPT)
    turn = meter.again(("first_8000_ms", "next_turn_ms"), LONG_CHAT, NEXT_TURN)
    for figure in [_crowd(meter, engine), _drawn(meter, engine), *first, *turn]:
        figures.append(figure)
        say(figure)
    return figures


def _crowd(meter: Meter, engine: OurEngine) -> Figure:
    """Output tokens a second of a whole call."""
    work = CrowdWork()

    def ask() -> tuple[Tokens, list[SamplingParams]]:
        prompts, lengths = work.draw(meter.prompts)
        return prompts, [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]

    return _throughput("crowd", meter, engine, ask)


def _drawn(meter: Meter, engine: OurEngine) -> Figure:
    def ask() -> tuple[Tokens, list[SamplingParams]]:
        params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=128, ignore_eos=True)
        return meter.prompts.many(NUM_DRAWN, 128), [params] * NUM_DRAWN

    return _throughput("drawn_64", meter, engine, ask)


def _throughput(
    row: str, meter: Meter, engine: OurEngine, ask: Callable[[], tuple[Tokens, list[SamplingParams]]]
) -> Figure:
    runs = []
    for number in range(UNCOUNTED + meter.repeats):
        prompts, params = ask()
        started = meter.clock()
        replies = engine.sample(prompts, params)
        seconds = meter.clock() - started
        meter.settle_after(number)
        if number >= UNCOUNTED:
            runs.append(sum(map(len, replies)) / seconds)
    return Figure(row=row, engine=engine.name, runs=runs)
