"""From a runner whose steps are eager to one whose steps are captured, on a GPU: kernels built while weights are
read, the first graphs, and what is made ready later. Elsewhere nothing happens.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from pagedchat.config import EngineConfig
from pagedchat.engine.output import ModelRunner
from pagedchat.errors import ModelError, first_line, is_out_of_memory
from pagedchat.jit.driver import gpu
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.common.launch import element_name
from pagedchat.ops.ranks.company import Company
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.choice import BackendChoice
from pagedchat.runtime.loading.check_record import keep_check, types_of
from pagedchat.runtime.loading.first_batches import FirstBatches
from pagedchat.runtime.loading.loaded import nothing_more, nothing_wanted
from pagedchat.runtime.loading.reports import Reports
from pagedchat.runtime.loading.self_check import SelfCheck
from pagedchat.runtime.step.model_runner import TorchModelRunner
from pagedchat.runtime.step.sizes import StepSizes

if TYPE_CHECKING:
    from pagedchat.jit.build_ahead import BuildAhead


class Running(NamedTuple):
    """Who runs batches."""

    runner: ModelRunner
    more: Callable[[], bool] = nothing_more
    """See `LoadedModel.prepare_more`."""
    wanted: Callable[[], None] = nothing_wanted
    """See `LoadedModel.prepare_wanted`."""
    refusals: Sequence[str] = ()
    """What could not be captured of a model of transformers, in sentences for people."""


class CapturedSteps:
    """Those of one model.

    Args:
        config: what the user set.
        sizes: of a step, at most.
        device: where the model runs.
        company: all ranks, where this is one of several: they run the same batches at the same time.
        reports: told when somebody waits.
    """

    def __init__(
        self,
        config: EngineConfig,
        sizes: StepSizes,
        device: torch.device,
        company: Company | None,
        reports: Reports,
    ) -> None:
        self._model = config.model
        self._speculates = config.speculation.method != "off"
        self._sizes = sizes
        self._device = device
        self._company = company
        self._reports = reports
        self._builds: list[BuildAhead] = []

    def build_ahead(self, model: torch.nn.Module, shape: CacheShape) -> None:
        """Begin with the kernels of the first steps, which take the compiler longest, beside those of attention.

        Args:
            model: whose weights may still be on their way.
            shape: of its cache.
        """
        if not isinstance(model, NativeModel) or self._device.type != "cuda" or self._model.enforce_eager:
            return
        from pagedchat.runtime.loading.first_graphs import build_first_kernels  # noqa: PLC0415 - a GPU's business

        self._builds = build_first_kernels(
            model, shape, self._sizes, self._device, batch_invariant=self._model.batch_invariant
        )

    def over(
        self, eager: TorchModelRunner, check: SelfCheck, attention: BackendChoice, *, is_foreign: bool
    ) -> Running:
        """Who runs batches: the eager runner itself where none of its steps is captured.

        Args:
            eager: over its cache.
            check: of it.
            attention: what its cache is of.
            is_foreign: whether its modules are strangers, which may fail in ways of their own; eagerly they run.
        """
        try:
            return self._running(eager, check, attention)
        except Exception as error:  # of many kinds
            if not is_foreign or is_out_of_memory(error):
                raise
            return Running(eager, refusals=[_uncaptured(first_line(error))])

    def _running(self, eager: TorchModelRunner, check: SelfCheck, attention: BackendChoice) -> Running:
        if attention.name != "cuda" or self._device.type != "cuda" or self._model.enforce_eager:
            return Running(eager)
        from pagedchat.runtime.loading.first_graphs import (  # noqa: PLC0415
            FirstGraphs,
            capture_others,
            make_wanted,
        )

        try:
            first = FirstGraphs(eager, self._sizes, at_first_use=self._company is not None)
        except ModelError as error:
            return Running(eager, refusals=[_uncaptured(first_line(error))])
        batches = FirstBatches(eager, eager.backend, self._sizes, check.vocab_size)
        if self._company is None:
            self._wait(lambda: first.build_likely() or batches.run_one())
            batches.run_some()
        else:  # ranks run the same batches, and none for as long as there is time
            self._wait(first.build_likely)
        captured = first.capture(check)
        self._keep_check(eager.backend.shape, check)
        if captured is None:
            return Running(eager, refusals=first.refusals)
        of_one_chat = FirstBatches(captured, eager.backend, self._sizes, check.vocab_size)
        for _ in ("its prompt", "a decode"):
            of_one_chat.run_one()
        first.want_what_serves_all(captured)
        # Drafts are known to rank 0 alone; the steps that verify them are captured at first use.
        speculates = self._speculates and self._company is None
        more = capture_others(captured, self._sizes, self._device, speculates=speculates, company=self._company)
        return Running(captured, more, partial(make_wanted, weakref.ref(captured)), first.refusals)

    def _keep_check(self, shape: CacheShape, check: SelfCheck) -> None:
        asked = self._model.quantization  # a GPU quantises nothing unasked
        quantization = None if asked in ("auto", "none") else asked
        keep_check(
            self._model.model,
            gpu(self._device.index).name,
            types_of(element_name(shape.dtype), quantization, shape.kind),
            check.left_out,
            batch_invariant=self._model.batch_invariant,
        )

    def _wait(self, meanwhile: Callable[[], bool]) -> None:
        """Until kernels are there; as long as there is something to do meanwhile, that is done."""
        for build in self._builds:
            if not build.wait(0):
                self._reports.say("kernels", "Compiling the kernels of whole steps")
                while not build.wait(0) and meanwhile():
                    pass
                build.wait()


def _uncaptured(reason: str) -> str:
    """What is said of a model of transformers whose steps stay eager."""
    return f"Steps of this model are not captured in CUDA graphs, and take longer: {reason:.200}."
