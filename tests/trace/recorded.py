"""Recordings of the scripted engine, made as the program makes them."""

import random
from pathlib import Path

import msgspec

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport, Steps, TokenTexts
from pagedchat.trace.recorder import Recorder
from tests.engine.checks import copied
from tests.scripted_reports import ScriptedEngine, random_workload


class RecordedEngine(ScriptedEngine):
    """A scripted engine whose every report is recorded."""

    def __init__(self, path: Path | None = None, max_scratch: int = 1 << 28, **limits: object) -> None:
        self.recorder = Recorder(path, max_scratch)
        super().__init__(**limits)
        assert self.view.info is not None
        self.recorder.apply(self.view.info, None, {})
        self.mirrors: list[CacheMirror] = [self._mirror_now()]
        """The cache at every position, position 0 first."""

    def tell(self, report) -> None:
        report = msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=StepReport)  # as from another process
        super().tell(report)
        sampled = [token for entry in report.batch for token in entry.token_ids]
        self.recorder.apply(TokenTexts(sampled, [b" w%d" % token for token in sampled]), None, {})
        self.recorder.apply(Steps([report]), self.view.mirror, self.view.labels)
        self.mirrors.append(self._mirror_now())

    def _mirror_now(self) -> CacheMirror:
        assert self.view.mirror is not None
        return bare(copied(self.view.mirror))


def bare(mirror: CacheMirror) -> CacheMirror:
    """Without the last report, whose times a trace rounds."""
    mirror.last = None
    return mirror


def random_run(path: Path | None = None, moves: int = 1500, seed: int = 1, **options: object) -> RecordedEngine:
    """Forks, rewinds, preemptions, swaps in a small pool."""
    engine = RecordedEngine(
        path, num_blocks=14, num_host_blocks=8, block_size=4, max_num_batched_tokens=16,
        preemption_mode="swap", **options,
    )  # fmt: skip
    engine.view.labels = {1: "1 tale", 2: "2 code"}
    for _ in random_workload(engine, random.Random(seed), moves):
        pass
    return engine


def same_report(told, read) -> bool:
    """Equal but for the rounding of times."""
    return msgspec.structs.replace(told, time=0.0, timings=read.timings) == msgspec.structs.replace(read, time=0.0)
