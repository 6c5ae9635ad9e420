"""Where an engine gets its model, be it on one device or cut over several. Light to import.

With one rank this is `runtime.loading.build.load_model`. With more, a process is started for each of the others,
all load their parts at the same time, and what comes back runs batches on all of them.
"""

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pagedchat.config import EngineConfig
from pagedchat.distributed.joining import check_devices, describe, join_group
from pagedchat.distributed.messages import Join
from pagedchat.distributed.runner import DistributedRunner
from pagedchat.distributed.workers import Workers, meeting_folder
from pagedchat.errors import DeviceError, PagedChatError
from pagedchat.events import LoadProgress, RankInfo
from pagedchat.runtime.loading import build
from pagedchat.runtime.loading.loaded import LoadedModel, Progress

if TYPE_CHECKING:
    from pagedchat.distributed.group import RankGroup

log = logging.getLogger(__name__)

_CATCH_UP = 5.0
"""Seconds for the others to end their last batch, and for what NCCL has to end."""


def load_model(config: EngineConfig, progress: Progress = lambda _: None, *, streams: bool = True) -> LoadedModel:
    """See `runtime.loading.build.load_model`.

    Raises:
        ModelError, DeviceError, InvalidValueError: as there; and a model that so many ranks cannot have equal parts
            of, fewer GPUs than ranks, a rank that is lost.
    """
    if config.model.tensor_parallel_size == 1:
        return build.load_model(config, progress, streams=streams)
    return _Ranks(config, progress, streams).load()


class _Ranks:
    """One loading on several ranks."""

    def __init__(self, config: EngineConfig, progress: Progress, streams: bool) -> None:
        self._config, self._progress, self._streams = config, progress, streams
        self._group: RankGroup | None = None
        self._size = config.model.tensor_parallel_size

    def load(self) -> LoadedModel:
        join = Join(self._config, self._streams, 0, self._size, meeting_folder())
        try:
            workers = Workers(join)
        except OSError as error:
            _remove(join.folder)
            raise DeviceError(
                f"tensor_parallel_size is {self._size}, but not so many processes can be started: {error}.",
                "Close other programs, or choose a smaller --tensor-parallel-size.",
            ) from error
        workers.tell_of_loss(self._leave)
        try:
            return self._load(join, workers)
        except BaseException as error:
            failure = None if isinstance(error, PagedChatError) else workers.loss()
            workers.close()
            self._leave()
            if self._group is not None:
                self._group.wait_closed(_CATCH_UP)
            _remove(join.folder)
            if failure is not None:  # a sum in which somebody was missing
                raise failure from error
            raise

    def _load(self, join: Join, workers: Workers) -> LoadedModel:
        def join_others() -> "RankGroup":
            self._progress(LoadProgress("import", f"Starting {self._size} ranks"))
            check_devices(self._config, self._size)
            workers.wait_arrived()
            self._group = join_group(self._config, 0, self._size, join.folder)
            return self._group

        loaded = build.load_model(self._config, self._progress, streams=self._streams, join_ranks=join_others)
        self._progress(LoadProgress("warmup", "Waiting for the other ranks"))
        others = workers.wait_loaded()
        assert self._group is not None  # noqa: S101 - it has been joined
        own = RankInfo(describe(self._group, loaded.info.device), loaded.info.num_blocks * loaded.info.block_bytes)
        ranks = (own, *(RankInfo(each.device, each.memory) for each in others))
        runner = DistributedRunner(loaded.runner, workers)
        return replace(
            loaded,
            runner=runner,
            prepare_more=partial(runner.prepare_more, loaded.prepare_more),
            info=msgspec.structs.replace(loaded.info, device=f"{self._size} × {loaded.info.device}", ranks=ranks),
            tell_of_loss=workers.tell_of_loss,
            release=partial(_release, loaded.release, workers, self._group, join.folder),
        )

    def _leave(self) -> None:
        if self._group is not None:
            self._group.close()


def _release(
    release: Callable[[Callable[[], None]], None],
    workers: Workers,
    group: "RankGroup",
    folder: str,
    drop: Callable[[], None],
) -> None:
    """End the other ranks, then give back what this one has."""
    if workers.wait_done(_CATCH_UP):
        group.finish()  # a step that was begun ahead needs all of them
    workers.close()
    group.close()
    release(drop)
    if not group.wait_closed(_CATCH_UP):
        log.warning("NCCL has not ended within %.0f s of its model.", _CATCH_UP)
    _remove(folder)


def _remove(folder: str) -> None:
    """Where ranks met. NCCL looks into it for as long as it is there, and for minutes if it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
