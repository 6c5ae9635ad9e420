"""One engine in this process for a long time: turns, forks, second tries, preemptions."""

import gc
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pagedchat.chat.replies import endings
from pagedchat.config import (
    CacheConfig,
    Device,
    EngineConfig,
    KVCacheDType,
    ModelConfig,
    PreemptionMode,
    SchedulerConfig,
)
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.stats import EngineStats
from pagedchat.runtime.loading.build import load_model
from tools.soak.memory import Course, resident
from tools.soak.queued import check_idle
from tools.soak.tables import grown, table_sizes

NUM_SAMPLES = 200
_MAX_CHATS = 8
_MAX_TOKENS = 360
"""Of one chat: after that it is closed."""
_FORK_STEPS = 97
"""Between two forks of a chat that is generating."""


@dataclass(slots=True)
class Mix:
    """Chats on an engine. What ends a turn begins the next one, or the chat ends and another is opened."""

    core: EngineCore
    vocab_size: int
    num_chats: int
    draw: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - not for secrets
    done: Counter[str] = field(default_factory=Counter)
    _prefix: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """The first chats."""
        self._prefix = self._tokens(40, 40)
        for _ in range(self.num_chats):
            self._open()

    def step(self) -> None:
        """One step, and what its chats do after it."""
        report = self.core.step()
        for ending in endings(report):
            self._go_on(ending.seq_id)
        if report.step % _FORK_STEPS == 0 and len(self.core.sequences) < _MAX_CHATS:
            self._fork()

    def end(self) -> None:
        """All are closed, in the middle of what they do."""
        for seq_id in list(self.core.sequences):
            self.core.close(seq_id)
        self.core.flush()

    def _go_on(self, seq_id: int) -> None:
        """A turn is over."""
        core, length = self.core, len(self.core.sequences[seq_id])
        if length > _MAX_TOKENS:
            core.close(seq_id)
            self.done["closed"] += 1
            if len(core.sequences) < self.num_chats:
                self._open()
        elif self.draw.random() < 0.2:
            core.rewind(seq_id, core.sequences[seq_id].num_prompt_tokens)
            core.extend(seq_id, [], self._params())
            self.done["asked again"] += 1
        else:
            core.extend(seq_id, self._tokens(5, 40), self._params())
            self.done["turns"] += 1

    def _open(self) -> None:
        seq_id = self.core.open()
        self.core.extend(seq_id, self._prefix + self._tokens(1, 40), self._params())
        self.done["opened"] += 1

    def _fork(self) -> None:
        seq_id = self.draw.choice(list(self.core.sequences))
        child = self.core.fork(seq_id)
        self.done["forked"] += 1
        if self.core.sequences[child].status == "parked":
            self._go_on(child)

    def _tokens(self, least: int, most: int) -> list[int]:
        return self.draw.choices(range(3, self.vocab_size), k=self.draw.randint(least, most))

    def _params(self) -> SamplingParams:
        temperature = self.draw.choice((0.0, 1.0))
        return SamplingParams(temperature=temperature, max_tokens=self.draw.randint(30, 160), ignore_eos=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOutcome:
    """What it took and what is left."""

    seconds: float
    stats: EngineStats
    """With all chats closed."""
    done: Counter[str]
    courses: list[Course]
    grown: dict[str, tuple[int, int]]
    """Tables with more entries at the end than in the middle, by half or more."""

    def lines(self) -> list[str]:
        """For people."""
        stats = self.stats
        done = ", ".join(f"{number:,} {name}" for name, number in sorted(self.done.items()))
        return [
            f"{stats.steps:,} steps in {self.seconds:.0f} s, {1000 * self.seconds / stats.steps:.3f} ms each",
            f"  {done}",
            f"  {stats.preemptions:,} preemptions, {stats.swaps_out:,} blocks swapped out, {stats.copies:,} "
            f"copied, {stats.evictions:,} evicted",
            f"  in use at the end: {stats.blocks_in_use} of {stats.blocks_total} blocks",
            f"  tables that grew: {self.grown or 'none'}",
        ]


def run_engine(
    model: str,
    device: Device,
    num_steps: int,
    *,
    max_seconds: float,
    num_blocks: int,
    num_chats: int,
    mode: PreemptionMode,
    kind: KVCacheDType = "auto",
) -> EngineOutcome:
    """A mix of chats for so many steps, or so many seconds at most.

    Raises:
        IntegrityError: the books disagree, or something is held at the end.
    """
    config = EngineConfig(
        model=ModelConfig(model=model, device=device, skip_tokenizer_init=True),
        cache=CacheConfig(num_blocks=num_blocks, swap_space=1 << 28 if mode == "swap" else 0, kv_cache_dtype=kind),
        scheduler=SchedulerConfig(preemption_mode=mode),
    )
    loaded = load_model(config)
    core = EngineCore(loaded.limits, loaded.runner)
    mix = Mix(core, loaded.info.vocab_size, num_chats)
    meters = _meters()
    courses = [Course(name) for name in meters]
    mix.begin()
    began, every = time.perf_counter(), max(1, num_steps // NUM_SAMPLES)
    tables: Counter[str] = Counter()
    for step in range(num_steps):
        if step % every == 0:
            _sample(step, courses, meters)
            if not tables and step >= num_steps // 2:
                tables = table_sizes([core])
            if time.perf_counter() - began > max_seconds:
                break
        mix.step()
    seconds = time.perf_counter() - began
    _sample(core.stats().steps, courses, meters)
    after = table_sizes([core])
    mix.end()
    check_idle(core)
    return EngineOutcome(
        seconds=seconds,
        stats=core.stats(),
        done=mix.done,
        courses=courses,
        grown={name: sizes for name, sizes in grown(tables, after, by=100).items() if sizes[1] > 1.5 * sizes[0]},
    )


def _meters() -> dict[str, Callable[[], float]]:
    """What is measured, by name; in bytes."""
    meters: dict[str, Callable[[], float]] = {"this process": lambda: resident(os.getpid())}
    import torch  # noqa: PLC0415 - loaded with the model

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        meters["GPU, allocated"] = torch.cuda.memory_allocated
        meters["GPU, reserved"] = torch.cuda.memory_reserved
        meters["GPU, all of it"] = lambda: -int.__sub__(*torch.cuda.mem_get_info())
    return meters


def _sample(step: int, courses: list[Course], meters: dict[str, Callable[[], float]]) -> None:
    gc.collect()
    for course in courses:
        course.add(step, meters[course.name]())
