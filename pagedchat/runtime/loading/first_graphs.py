"""The CUDA graphs that the first chat needs, made and tried out while loading; the others are for spare time.

A GPU's business: elsewhere nobody imports it.
"""

from collections.abc import Callable
from typing import cast

import torch

from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps
from pagedchat.runtime.graphs.spare_time import SpareTime
from pagedchat.runtime.loading.memory import graph_memory
from pagedchat.runtime.loading.self_check import SelfCheck
from pagedchat.runtime.step.model_runner import NativeModelRunner
from pagedchat.runtime.step.sizes import StepSizes

PREPARED_TOKENS = (32, 64)
"""Of the first prompts, for which captured passes are made ready at once."""


def build_first_kernels(
    model: NativeModel, shape: CacheShape, sizes: StepSizes, device: torch.device
) -> list[BuildAhead]:
    """Begin to build the kernels that `capture_first` takes, in the background.

    Nothing is captured, so that a cache of one block does: kernels do not depend on how many there are.

    Args:
        model: whose steps.
        shape: of its cache.
        sizes: of a step, at most.
        device: the GPU.
    """
    backend = CudaAttention(shape, 1, 0, device)
    prefills = PrefillSteps(model, backend, sizes)
    builds = [DecodeSteps(model, backend, sizes).build_ahead(1, 1)]
    builds += [prefills.build_ahead(num_tokens) for num_tokens in PREPARED_TOKENS]
    return [build for build in builds if build is not None]


def capture_first(runner: NativeModelRunner, check: SelfCheck, sizes: StepSizes) -> CapturedRunner | None:
    """Capture the steps of one chat, with short prompts.

    Args:
        runner: eager, over a `CudaAttention` whose contents do not matter.
        check: of the same runner.
        sizes: of a step, at most.

    Returns:
        Who runs batches from now on; None where captured steps are not right.
    """
    backend = cast(CudaAttention, runner.backend)
    decodes = DecodeSteps(runner.model, backend, sizes)
    prefills = PrefillSteps(runner.model, backend, sizes)
    decodes.prepare(1, 1)
    if not check.allows_decodes(decodes):
        return None
    for num_tokens in PREPARED_TOKENS:
        prefills.prepare(num_tokens)
    return CapturedRunner(runner, decodes, prefills if check.allows_prefills(prefills) else None)


def capture_others(runner: CapturedRunner, sizes: StepSizes, device: torch.device) -> Callable[[], bool]:
    """What captures one more whenever it is called, see `LoadedModel.prepare_more`.

    Args:
        runner: uses what is captured.
        sizes: of a step, at most.
        device: the GPU.
    """
    free, total = torch.cuda.mem_get_info(device)
    return SpareTime(
        runner.decodes,
        runner.prepare_prefill,
        sizes,
        free_memory=lambda: torch.cuda.mem_get_info(device)[0],
        most_memory=min(graph_memory(total), free // 2),
    )
