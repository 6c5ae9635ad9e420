"""The CUDA graphs that the first chat needs, made and tried out while loading; the others are for spare time.

A GPU's business: elsewhere nobody imports it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast
from weakref import ref

import torch

from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import build_ahead, rehearse
from pagedchat.layers.experts import SparseMlp
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.catalogue import variants_where_asked
from pagedchat.ops.common.launch import element_name
from pagedchat.ops.ranks.company import Company, agree_of
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.foreign_model import ForeignModel
from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps
from pagedchat.runtime.graphs.shelf import Shelf
from pagedchat.runtime.graphs.spare_time import SpareTime, in_order
from pagedchat.runtime.graphs.workshop import Workshop
from pagedchat.runtime.loading.invariance import product_variants
from pagedchat.runtime.loading.memory import graph_memory
from pagedchat.runtime.loading.self_check import SelfCheck
from pagedchat.runtime.step.model_runner import NativeModelRunner, TorchModelRunner
from pagedchat.runtime.step.sizes import StepSizes

PREPARED_TOKENS = (32, 64)
"""Of the first prompts, for which captured passes are made ready at once."""
PIECE_TOKENS = 256
"""Of a chunk of a long prompt for which there is a pass before others: more are several such chunks until then."""
NUM_LIKELY = 8
"""Batches that come next as a rule: two, four and eight chats, and one that has grown."""


def build_first_kernels(
    model: NativeModel, shape: CacheShape, sizes: StepSizes, device: torch.device, *, batch_invariant: bool = False
) -> list[BuildAhead]:
    """Begin to build the kernels that `FirstGraphs` takes, in the background.

    Nothing is captured, so that a cache of one block does: kernels do not depend on how many there are.

    Args:
        model: whose steps.
        shape: of its cache.
        sizes: of a step, at most.
        device: the GPU.
        batch_invariant: whether a token's numbers are to follow from its sequence alone.
    """
    backend = CudaAttention(shape, 1, 0, device, batch_invariant=batch_invariant)
    prefills = PrefillSteps(model, backend, sizes)
    builds = [DecodeSteps(model, backend, sizes).build_ahead(1, 1)]
    builds += [prefills.build_ahead(num_tokens) for num_tokens in PREPARED_TOKENS]
    if batch_invariant:
        builds.append(build_ahead(product_variants(model), device.index))
    builds.append(_build_mixtures(model, sizes.num_tokens, device))
    return [build for build in builds if build is not None]


@torch.inference_mode()
def _build_mixtures(model: NativeModel, most_tokens: int, device: torch.device) -> BuildAhead | None:
    """Those of all sizes of batches, which eager steps take too; None where there is no mixture."""
    layer = next((module for module in model.modules() if isinstance(module, SparseMlp)), None)
    if layer is None:
        return None
    router = layer.router.weight
    with rehearse() as wanted:
        for num_tokens in layer.distinct_sizes():
            layer(router.new_zeros(min(num_tokens, most_tokens), router.shape[1]))
    return build_ahead(wanted, device.index or 0)


class FirstGraphs:
    """The steps of one chat, with short prompts.

    Args:
        runner: eager, over a `CudaAttention` whose contents do not matter.
        sizes: of a step, at most.
        at_first_use: whether batches wait for their steps, see `Shelf`: so that all ranks of a model run the same.

    Raises:
        ModelError: a model of transformers that does not say enough of itself.
    """

    def __init__(self, runner: TorchModelRunner, sizes: StepSizes, *, at_first_use: bool = False) -> None:
        backend = cast(CudaAttention, runner.backend)
        model = runner.model if isinstance(runner, NativeModelRunner) else ForeignModel(runner.model)
        self._runner = runner
        self._sizes = sizes
        self._is_foreign = isinstance(model, ForeignModel)
        self._decodes = DecodeSteps(model, backend, sizes, at_first_use=at_first_use)
        self._prefills = PrefillSteps(model, backend, sizes, at_first_use=at_first_use)
        self._at_first_use = at_first_use
        self._likely = iter(in_order(sizes)[1 : 1 + NUM_LIKELY])
        self.refusals: list[str] = []
        """What cannot be captured of a model of transformers, in sentences for people."""

    def build_likely(self) -> bool:
        """Begin to build the kernels of the likeliest batch that is left, beside those of the first one.

        To be called only while those are waited for: looking for kernels takes as long as a step does on the host.

        Returns:
            Whether there was one.
        """
        bucket = next(self._likely, None)
        if bucket is not None:
            self._decodes.build_ahead(*bucket, quietly=True)
        return bucket is not None

    def capture(self, check: SelfCheck) -> CapturedRunner | None:
        """Capture them.

        Args:
            check: of the same runner.

        Returns:
            Who runs batches from now on; None where captured steps are not right, or cannot be captured.
        """
        decodes, prefills = self._decodes, self._prefills
        if not self._is_there("Decodes", decodes.prepare(1, 1), decodes.store):
            return None
        if not check.allows_decodes(decodes):
            return None
        are_there = all(prefills.prepare(num_tokens) for num_tokens in PREPARED_TOKENS)
        if not self._is_there("Prompts", are_there, prefills.store) or not check.allows_prefills(prefills):
            return CapturedRunner(self._runner, decodes, None, self._workshop(*decodes.shelves))
        return CapturedRunner(self._runner, decodes, prefills, self._workshop(*decodes.shelves, prefills.store))

    def want_what_serves_all(self, runner: CapturedRunner) -> None:
        """Have steps of one chat made that is as long as may be: any batch can go by these in pieces, see
        `graphs.in_pieces`."""
        runner.decodes.want(1, self._sizes.model_len)
        if runner.prefills is not None:
            runner.prefills.want(min(PIECE_TOKENS, self._sizes.num_tokens), self._sizes.model_len)

    def _workshop(self, *shelves: Shelf[Any]) -> Workshop | None:
        """It goes by the time, which is another one on each rank."""
        return None if self._at_first_use else Workshop([*shelves])

    def _is_there(self, what: str, is_there: bool, shelf: Shelf[Any]) -> bool:
        """Whether captured steps of a kind are worth going on with: strangers that fail once will fail again."""
        if is_there or not self._is_foreign or not shelf.refusal:
            return True
        self.refusals.append(
            f"{what} of this model are not captured in CUDA graphs, and take longer: {shelf.refusal}."
        )
        return False


def make_wanted(runner: "ref[CapturedRunner]") -> None:
    """See `LoadedModel.prepare_wanted`; nothing where the runner is gone."""
    captured = runner()
    if captured is not None:
        captured.make_all_wanted()


def capture_others(
    runner: CapturedRunner,
    sizes: StepSizes,
    device: torch.device,
    *,
    speculates: bool,
    company: Company | None = None,
) -> Callable[[], bool]:
    """What captures one more whenever it is called, see `LoadedModel.prepare_more`.

    Beside it kernels are built, quietly, that few requests ask for; the first of these should not wait for them.

    Args:
        runner: uses what is captured.
        sizes: of a step, at most.
        device: the GPU.
        speculates: see `SpareTime`.
        company: all ranks, where this is one of several: they call what is returned at the same time.
    """
    element, index = element_name(runner.decodes.dtype), device.index or 0
    build_ahead(variants_where_asked(element, gpu(index).architecture), index, quietly=True)
    free, total = torch.cuda.mem_get_info(device)
    agree = agree_of(company)
    return SpareTime(
        runner.decodes,
        partial(runner.prepare_prefill, agree),
        sizes,
        make_wanted=runner.make_wanted,
        free_memory=lambda: torch.cuda.mem_get_info(device)[0],
        most_memory=min(graph_memory(total), free // 2),
        speculates=speculates,
        agree=agree,
    )
