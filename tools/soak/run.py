"""Both processes as users have them, for a long time: steps are run as fast as they come."""

import asyncio
import gc
import json
import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.errors import IntegrityError
from pagedchat.service.client import EngineClient
from pagedchat.service.process import DEFAULT_ENTRY
from tools.soak.child import LOADER, SIGNAL, VARIABLE
from tools.soak.memory import SHARES, Course, Handles, handles, no_blocks_left, resident
from tools.soak.tables import grown, table_sizes
from tools.soak.user import SIZE, SoakedApp

NUM_SAMPLES = 200
_PATIENCE = 30.0
_FEW = 200
"""Entries by which a table may grow unnoticed."""


@dataclass(slots=True)
class Look:
    """What both processes hold at one moment."""

    step: int
    ui: Handles
    engine: Handles
    ui_tables: Counter[str]
    engine_tables: Counter[str]


@dataclass(slots=True)
class RunOutcome:
    """What it took and what is left."""

    seconds: float = 0.0
    steps: int = 0
    courses: list[Course] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    """At the beginning, after a tenth, half and all of it."""
    done: Counter[str] = field(default_factory=Counter)
    preemptions: int = 0
    wrong: list[str] = field(default_factory=list)
    """What went wrong, in sentences."""

    def lines(self) -> list[str]:
        """For people."""
        done = ", ".join(f"{number:,} {name}" for name, number in self.done.most_common())
        lines = [
            f"{self.steps:,} steps in {self.seconds:.0f} s, {1000 * self.seconds / max(1, self.steps):.2f} ms each",
            f"  {done}, {self.preemptions:,} preemptions",
        ]
        looks = [
            f"  step {look.step:>9,}: {_held('screens', look.ui)}; {_held('engine', look.engine)}"
            for look in self.looks
        ]
        return [*lines, *looks, "  tables that grew in the second half:", *(self._grown() or ["    none"])]

    def _grown(self) -> list[str]:
        if len(self.looks) < 2:
            return []
        half, end = self.looks[-2:]
        pairs = {
            "screens": (half.ui_tables, end.ui_tables),
            "engine": (half.engine_tables, end.engine_tables),
        }
        return [
            f"    {process}: {name} from {sizes[0]:,} to {sizes[1]:,}"
            for process, (before, after) in pairs.items()
            for name, sizes in grown(before, after, by=_FEW).items()
        ]


def _held(name: str, held: Handles) -> str:
    return f"{name} {held.files} files, {held.threads} threads, {held.processes} processes of its own"


def run_both(model: str, num_steps: int, *, seed: int, num_blocks: int, max_seconds: float) -> RunOutcome:
    """The program with its engine process, and somebody who uses it."""
    with tempfile.TemporaryDirectory(prefix="pagedchat-soak-") as folder:
        os.environ[VARIABLE] = str(Path(folder, "tables.json"))
        return asyncio.run(_Run(model, num_steps, seed, num_blocks, max_seconds, Path(folder)).run())


class _Run:
    """One run, looked at from inside the screens' process."""

    def __init__(
        self, model: str, num_steps: int, seed: int, num_blocks: int, max_seconds: float, folder: Path
    ) -> None:
        self._num_steps, self._seed, self._max_seconds = num_steps, seed, max_seconds
        self._tables = folder / "tables.json"
        config = EngineConfig(
            model=ModelConfig(model=model, device="cpu"),
            cache=CacheConfig(num_blocks=num_blocks, swap_space=1 << 24),
            scheduler=SchedulerConfig(preemption_mode="swap"),
        )
        self._client = EngineClient(config, folder, [*DEFAULT_ENTRY, "--loader", LOADER])
        self._outcome = RunOutcome(courses=[Course("screens"), Course("engine")])
        self._began = 0.0

    async def run(self) -> RunOutcome:
        """Until the engine has made its steps."""
        outcome = self._outcome
        app = SoakedApp(
            self._client, self._num_steps, self._seed, self._look, max(1, self._num_steps // NUM_SAMPLES)
        )
        self._began = time.perf_counter()
        await app.run_async(headless=True, size=SIZE)
        outcome.seconds = time.perf_counter() - self._began
        outcome.done = app.done
        if app.return_code:
            outcome.wrong.append("The program ended with an error.")
        if outcome.steps < self._num_steps and outcome.seconds < self._max_seconds:
            outcome.wrong.append(f"The run ended after {outcome.steps:,} of {self._num_steps:,} steps.")
        return outcome

    async def _look(self, app: SoakedApp, step: int) -> bool:
        """Look at both processes; whether the run is to go on."""
        outcome, pid = self._outcome, self._client.pid
        if pid is None:
            outcome.wrong.append(f"The engine ended after step {step:,}.")
            return False
        gc.unfreeze()
        gc.collect()
        over = step >= self._num_steps or time.perf_counter() - self._began > self._max_seconds
        outcome.steps = step
        outcome.courses[0].add(step, resident(os.getpid()) - resident(pid))
        outcome.courses[1].add(step, resident(pid))
        due = len(outcome.looks) < len(SHARES) and step >= SHARES[len(outcome.looks)] * self._num_steps
        if due or over:
            outcome.looks.append(await self._look_closely(app, pid, step))
        if over and not app.view.present.mirror.sequences:
            self._close_books(app)
        return not over

    async def _look_closely(self, app: SoakedApp, pid: int, step: int) -> Look:
        self._tables.unlink(missing_ok=True)
        os.kill(pid, SIGNAL)
        async with asyncio.timeout(_PATIENCE):
            while not self._tables.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)
        engine_tables = Counter(json.loads(self._tables.read_text(encoding="utf-8")))
        return Look(step, handles(os.getpid()), handles(pid), table_sizes([app]), engine_tables)

    def _close_books(self, app: SoakedApp) -> None:
        """All chats are closed."""
        state, outcome = app.view.present, self._outcome
        last = state.mirror.last
        outcome.preemptions = last.counters.preemptions if last else 0
        try:
            no_blocks_left(state.pool.in_use, state.pool.host_in_use, len(state.mirror.sequences))
        except IntegrityError as error:
            outcome.wrong.append(str(error))
        if app.view.broken is not None:
            outcome.wrong.append(f"The engine's books disagree: {app.view.broken}")
        if app.groups.first.bridge.recording is None or app.groups.first.bridge.recording.damage:
            outcome.wrong.append("Nothing was recorded.")
