"""Compiles the kernels that one model needs, in the background from the moment it is made."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from queue import SimpleQueue
from threading import Thread

import torch

from pagedchat.jit.architecture import architecture_of
from pagedchat.jit.builder import Build, compile_all
from pagedchat.ops.cache.byte_kinds import CACHE_KIND_OF
from pagedchat.ops.catalogue import variants_for_model
from pagedchat.ops.common.choices import ScoreParts
from pagedchat.ops.common.launch import element_name
from pagedchat.runtime.attention.backend import CacheShape


class KernelBuild:
    """Starts to compile (or to read from the disk cache) when it is made.

    Args:
        shape: of the model's cache; one that the kernels support.
        scores: what the model does to its scores.
        device: the GPU.
        batch_invariant: whether attention is to be that of which rows do not depend on others.
    """

    def __init__(
        self, shape: CacheShape, scores: ScoreParts, device: torch.device, *, batch_invariant: bool = False
    ) -> None:
        self._architecture = architecture_of(*torch.cuda.get_device_capability(device))
        self._variants = variants_for_model(
            element=element_name(shape.dtype),
            head_size=shape.head_dim,
            block_size=shape.block_size,
            group_size=shape.num_heads // shape.num_kv_heads,
            batch_invariant=batch_invariant,
            cache_kind=0 if shape.kind is None else CACHE_KIND_OF[shape.kind],
            architecture=self._architecture,
            **asdict(scores),
        )
        self._done: SimpleQueue[tuple[int, bool] | None] = SimpleQueue()
        self._result: Future[list[Build]] = Future()
        Thread(target=self._run, name="compile-kernels").start()

    def wait(self, report: Callable[[str, int, int], None]) -> None:
        """Return when all are there; until then say how it goes, in this thread.

        Args:
            report: told a message, how many kernels are done, and of how many.

        Raises:
            KernelError: there is no compiler, or a kernel does not compile.
        """
        total = len(self._variants)
        all_cached = True
        while (item := self._done.get()) is not None:
            done, cached = item
            all_cached &= cached
            what = "Taking kernels from the cache" if all_cached else f"Compiling kernels for {self._architecture}"
            report(what, done, total)
        self._result.result()

    def _run(self) -> None:
        try:
            self._result.set_result(compile_all(self._variants, self._architecture, self._note))
        except BaseException as error:
            self._result.set_exception(error)
        self._done.put(None)

    def _note(self, done: int, _total: int, build: Build) -> None:
        self._done.put((done, build.cached))
