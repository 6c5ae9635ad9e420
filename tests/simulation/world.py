"""A world of two processes, a pipe, a disk and a user, all from one seed: whatever happens in it happens again.

A run is a series of storms, in which the user does anything and anything breaks, and of calms, in which everything
must come to rest: no request without an end, no block that nobody holds, a mirror that is the engine, and a trace
that reads as what was seen.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from zlib import crc32

from pagedchat.config import EngineConfig, SpeculationConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.ops.cache.byte_cache import DTYPES
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.service import client as client_module
from pagedchat.trace import writer as writer_module
from tests.fakes import EOS
from tests.simulation.clock import VirtualLoop
from tests.simulation.disk import Disk
from tests.simulation.engine_process import PLACES, Killed, SimulatedEngine, SimulatedProcess, StepError
from tests.simulation.model import FORMATS, kernel_letters, tokenizer
from tests.simulation.oracle import Oracle
from tests.simulation.ui_process import SimulatedUi
from tests.simulation.user import User

ACTIONS_IN_A_STORM = 60
PATIENCE = 3600.0
"""Seconds in which everything must have come to rest."""
STEPS = ("turns", "pieces", "actions", "faults")
"""What counts as a step of the simulation."""


def form_of(seed: int) -> str | None:
    """Of the weights by which kernels choose a world's tokens; None: symbols do."""
    return Random(f"letters {seed}").choice([None, None, *FORMATS])


def kind_of(seed: int) -> CacheKind | None:
    """Of the pages of bytes that a world keeps beside its symbols; None: there are none."""
    return Random(f"pages {seed}").choice([None, None, None, *DTYPES])


class World:
    """Everything that one seed makes happen.

    Args:
        seed: all of it.
        faults: whether anything breaks.
    """

    def __init__(self, seed: int, *, faults: bool = True) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.crc = 0
        """Of all that went over pipes and into traces: a seed that is run again has the same."""
        self.loop = VirtualLoop()
        self.disk = Disk(self.random.choice((1 << 30, 1 << 30, 40_000)), self.loop.time)
        self.limits = self._limits()
        self.whole = self.random.random() < 0.1
        form = form_of(seed)
        self.letters = None if form is None else kernel_letters(form)
        if self.letters is not None:
            self.seen[f"worlds by kernels in {form}"] += 1
        self.kind = kind_of(seed)
        if self.kind is not None:
            self.seen[f"worlds with pages of {self.kind}"] += 1
        self._faults = faults
        self.engine: SimulatedEngine | None = None
        self._process: SimulatedProcess | None = None
        self.ui: SimulatedUi

    def _limits(self) -> EngineLimits:
        choose = self.random
        return EngineLimits(
            num_blocks=choose.choice((6, 20, 60)),
            num_host_blocks=choose.choice((0, 8, 64)),
            block_size=choose.choice((1, 4, 8)),
            model_len=choose.choice((60, 200)),
            max_num_seqs=choose.randint(1, 8),
            max_num_batched_tokens=choose.choice((1, 8, 64)),
            enable_prefix_caching=choose.random() < 0.8,
            preemption_mode=choose.choice(("recompute", "swap")),
            eos_token_ids=frozenset({tokenizer().token_to_id(EOS)}),
            reserve_ahead=choose.random() < 0.5,
            speculation=SpeculationConfig(
                **choose.choice(({"method": "lookup"}, {"method": "off"}, {"method": "model", "model": "smaller"})),
                prompt_lookup_min=1,
            ),
        )

    @property
    def last_trace(self) -> bytes | None:
        """The recording under way, or the last one that was."""
        files = [file for file in self.disk.files if file.recorded]
        return bytes(files[-1].data) if files else None

    @property
    def num_steps(self) -> int:
        """Commands, engine steps, pieces on a pipe, the user's doings and faults so far."""
        return sum(self.seen[kind] for kind in STEPS)

    def run(self, num_steps: int) -> Counter[str]:
        """Storms and calms until so many steps have been made."""
        asyncio.set_event_loop(None)
        try:
            with self._patched():
                self.loop.run_until_complete(self._live(num_steps))
        finally:
            self._clean_up()
        return self.seen

    def _clean_up(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.call_later(0.0, self.loop.stop)
        self.loop.run_forever()
        self.loop.close()

    @contextmanager
    def _patched(self) -> Iterator[None]:
        clock = SimpleNamespace(monotonic=self.loop.time)
        process = SimpleNamespace(start=self._start_process)
        with (
            patch.object(client_module, "time", clock),
            patch.object(client_module, "EngineProcess", process),
            patch.object(writer_module, "time", SimpleNamespace(time=self.loop.time)),
        ):
            yield

    async def _start_process(
        self,
        config: EngineConfig,
        log_file: Any,
        on_event: Callable[[Any], None],
        entry: Any = None,
        *,
        follows_steps: bool,
        coming: Callable[[], int],
    ) -> SimulatedProcess:
        assert follows_steps
        assert coming() == 0
        self.seen["engines"] += 1
        self.oracle.num_engines += 1
        engine = SimulatedEngine(
            self.loop, self.random, self.limits, self.seen, self.oracle.told, self.letters, self.kind
        )
        process = SimulatedProcess(engine, self.loop, self.random, on_event)
        process.to_engine.watch = process.from_engine.watch = self._watch
        self.engine, self._process = engine, process
        process.start(config)
        return process

    def _watch(self, piece: bytes) -> None:
        self.seen["pieces"] += 1
        self.crc = crc32(piece, self.crc)

    # --- lives --------------------------------------------------------------------------------------

    async def _live(self, num_steps: int) -> None:
        self._begin_life()
        while self.num_steps < num_steps:
            await self._storm()
            if self._faults and self.random.random() < 0.1:
                await self._die()
            else:
                await self._calm()
            self.seen["storms"] += 1
        await self._quit()

    def _begin_life(self) -> None:
        self.seen["lives"] += 1
        self.oracle = Oracle(self.seen, self.letters)
        self.ui = SimulatedUi(self.loop, self.random, self.limits, self.disk, self.oracle, whole=self.whole)
        self.user = User(self.ui, self.random, self.seen)

    async def _die(self) -> None:
        """The UI process is killed; the engine must end with it, and what was recorded must be there."""
        self.seen["faults"] += 1
        self.ui.die()
        engine, process = self.engine, self._process
        if process is not None and engine is not None:
            process.abandon()
            await asyncio.wait_for(asyncio.shield(engine.exit_code), PATIENCE)
        self.disk.files[-1].cut(self.random)
        self._check_trace()
        self._begin_life()

    async def _quit(self) -> None:
        await self.ui.quit()
        assert self.engine is None or not self.engine.alive, "an engine without anybody who talks to it"
        self._check_trace()

    def _check_trace(self) -> None:
        """Of the last recording, if one was begun."""
        file = self.disk.files[-1]
        if file.recorded:
            self.crc = crc32(file.data, self.crc)
            self.seen += self.ui.check_trace(file, self.loop.time())
        del self.disk.files[:-1]

    # --- storms and calms ---------------------------------------------------------------------------

    async def _storm(self) -> None:
        for _ in range(self.random.randint(1, ACTIONS_IN_A_STORM)):
            self._check_ui()
            self.seen["actions"] += 1
            self.user.act()
            if self._faults and self.random.random() < 0.004:
                await self.ui.client.restart()  # as a key does it
            if self._faults and self.random.random() < 0.06:
                self._break_something()
            await asyncio.sleep(self.random.choice((0.0, 0.001, 0.02, 0.5)))

    def _check_ui(self) -> None:
        if self.ui.failure is not None:
            raise self.ui.failure

    def _break_something(self) -> None:
        engine, process = self.engine, self._process
        if engine is None or process is None or not engine.alive:
            return
        self.seen["faults"] += 1
        now, seconds = self.loop.time(), self.random.choice((0.05, 1.0, 15.0))
        match self.random.randrange(6):
            case 0:
                engine.kill()
            case 1:
                engine.fault = (self.random.choice(PLACES), self.random.choice((Killed, StepError)))
            case 2:
                engine.fault = (self.random.choice(PLACES), StepError)
            case 3:
                engine.frozen_until = now + seconds
            case 4:
                self.ui.stalled_until = now + seconds
            case 5:
                process.from_engine.stalled_until = now + seconds

    async def _calm(self) -> None:
        """Everything comes to rest, and is checked."""
        if self.engine is not None:
            self.engine.fault = None
        deadline, let_go_at = self.loop.time() + PATIENCE, 0.0
        while self._restless():
            self._check_ui()
            now = self.loop.time()
            assert now < deadline, f"no rest: {', '.join(self._restless())}"
            if self.ui.failed:
                self.ui.failed = False
                await self.ui.client.start()
            if now >= let_go_at:  # and again, as an engine may have been started meanwhile
                let_go_at = now + 20.0
                self.user.let_go()
            await asyncio.sleep(0.1)
        assert self.engine is not None
        self.engine.core.check_integrity()
        self.ui.check_at_rest(self.engine.core)
        self.seen["calms"] += 1

    def _restless(self) -> list[str]:
        """What is still going on."""
        engine, process, ui = self.engine, self._process, self.ui
        if engine is None or process is None or not ui.ready:
            return ["no engine is ready"]
        going_on = {
            "the engine works": not engine.idle,
            "a pipe has bytes": not process.quiet,
            "the UI hangs": self.loop.time() <= ui.stalled_until,
            "events wait": not ui.client._events.empty(),
            "a program waits": bool(ui.program.asked),
            **{f"{chat.label} is {chat.state}": chat.busy or bool(chat.queue) for chat in ui.desk},
        }
        return [what for what, still in going_on.items() if still]
