"""The sections of a run on a GPU, in an order in which they do not disturb each other.

The start comes first, before this process has touched the GPU: a driver that is awake starts sooner. Each section
gives its memory back before the next begins.
"""

import gc
import tempfile
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import torch

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.beams import measure_beams
from pagedchat.bench.engine.client import WORKS, measure_client
from pagedchat.bench.engine.engines import OurEngine, transformers_engines
from pagedchat.bench.engine.measure_shapes import measure_shape
from pagedchat.bench.engine.measures import Engine, Figure, Meter
from pagedchat.bench.engine.results import Results
from pagedchat.bench.engine.same_tokens import SameTokens, compare_company, compare_implementations
from pagedchat.bench.engine.start import MAX_COLD_RUNS, measure_start
from pagedchat.bench.engine.stutter import StutterFigure, measure_stutter
from pagedchat.bench.engine.workloads import DECODES, PrefixWork, Prompts
from pagedchat.bench.kernels.bandwidth import measure_limits
from pagedchat.bench.random_checkpoint import LARGE_STD, OPT_125M, write_checkpoint
from pagedchat.config import CacheConfig, DType, EngineConfig, ModelConfig

Say = Callable[[str], None]
Measure = Callable[[], list[Figure]]

PROCESSES = {"start", "stutter"}
"""Sections that run in processes of their own."""
SPEED = ("decode", "first", "prefix", "beams")
_MEMORY_SHARE = 0.5
"""Of the GPU, as the stored peers had it; what runs beside needs room too."""


class Measuring:
    """One run.

    Args:
        folder: of the checkpoint.
        dtype: of weights and cache.
        repeats: runs of each row.
        against: peers that run beside.
        shapes: names of the larger ones.
        made_up: whether the checkpoint is one of ours, and may be replaced where another says more.
        say: told of progress.
    """

    def __init__(
        self,
        folder: str,
        dtype: DType,
        repeats: int,
        against: Collection[str],
        shapes: Collection[str],
        *,
        made_up: bool,
        say: Say,
    ) -> None:
        self._folder = folder
        self._dtype = dtype
        self._repeats = repeats
        self._against = against
        self._shapes = shapes
        self._made_up = made_up
        self._say = say

    def run(self, wanted: Collection[str]) -> Results:
        """Measure these sections.

        Raises:
            PagedChatError: what the engine refuses.
        """
        folder = Path(self._folder)
        start = measure_start(folder, self._repeats, self._say) if "start" in wanted else []
        stutter = self._stutter(folder) if "stutter" in wanted else []
        results = Results(gpu=torch.cuda.get_device_name(), repeats=self._repeats, start=start, stutter=stutter)
        if set(wanted) <= PROCESSES:
            return results
        results.copy_gb_s = self._bandwidth()
        if not set(wanted).isdisjoint(SPEED):
            self._speed(wanted, results)
        if "client" in wanted:
            results.client = self._client()
        for name in self._shapes if "shapes" in wanted else ():
            self._say(f"the shape of {name}")
            results.shapes.append(measure_shape(name, self._dtype, self._repeats, results.copy_gb_s, self._say))
            _free()
        if "same" in wanted:
            self._say("whether tokens are the same")
            results.same = self._same()
        return results

    def _stutter(self, folder: Path) -> list[StutterFigure]:
        return measure_stutter(folder, "cuda", self._dtype, min(self._repeats, MAX_COLD_RUNS), self._say)

    def _bandwidth(self) -> float:
        self._say("bandwidth of the memory")
        copy = measure_limits(link=False).copy
        _free()
        return copy

    def _speed(self, wanted: Collection[str], results: Results) -> None:
        llm = LLM(
            self._folder,
            device="cuda",
            dtype=self._dtype,
            gpu_memory_utilization=_MEMORY_SHARE,
            skip_tokenizer_init=True,
        )
        prompts = Prompts(llm.info.vocab_size)
        self._run_engine(OurEngine(llm), prompts, wanted, results)
        if "beams" in wanted:
            self._say("beam search")
            results.beams = measure_beams(llm, "cuda", self._repeats, self._say)
        del llm
        _free()
        if "transformers" in self._against:
            for engine in transformers_engines(self._folder, self._dtype):
                self._run_engine(engine, prompts, wanted, results)
                _free()

    def _run_engine(self, engine: Engine, prompts: Prompts, wanted: Collection[str], results: Results) -> None:
        meter = Meter(engine, prompts, self._repeats)
        for what, measure in _plan(meter, wanted):
            self._say(f"{engine.name}: {what}")
            try:
                figures = measure()
            except Exception as error:  # a peer may raise anything, and the others have to go on
                if isinstance(engine, OurEngine):
                    raise
                results.failed[f"{engine.name}, {what}"] = f"{type(error).__name__}: {error}"[:200]
                continue
            results.speed += figures
            self._say(f"{engine.name}: {', '.join(map(str, figures))}")

    def _client(self) -> list[Figure]:
        config = EngineConfig(
            model=ModelConfig(model=self._folder, device="cuda", dtype=self._dtype),
            cache=CacheConfig(gpu_memory_utilization=_MEMORY_SHARE),
        )
        figures = measure_client(config, self._repeats, self._say, WORKS)
        _free()
        return figures

    def _same(self) -> list[SameTokens]:
        """Greedy replies with a model made up for it if none was given: those of the usual one repeat one token."""
        company = compare_company(self._folder, "cuda")
        if not self._made_up:
            return [compare_implementations(self._folder, "cuda"), company]
        with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as name:
            write_checkpoint(Path(name), OPT_125M, torch.float32, torch.device("cuda"), std=LARGE_STD)
            return [compare_implementations(name, "cuda"), company]


def _plan(meter: Meter, wanted: Collection[str]) -> list[tuple[str, Measure]]:
    plan: list[tuple[str, Measure]] = []
    if "decode" in wanted:
        plan += [(f"together: {work.num_chats}", partial(meter.decode, work)) for work in DECODES]
    if "first" in wanted:
        plan.append(("first token", meter.first_token))
    if "prefix" in wanted:
        plan.append(("shared prefix", partial(meter.prefix, PrefixWork())))
    return plan


def _free() -> None:
    gc.collect()
    torch.cuda.empty_cache()
