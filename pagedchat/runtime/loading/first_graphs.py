"""The CUDA graphs that the first chat needs, made and tried out while loading; the others are for spare time."""

from collections.abc import Callable

import torch

from pagedchat.runtime.graphs.decode.check import keep_if_right
from pagedchat.runtime.loading.build import nothing_more
from pagedchat.runtime.loading.memory import graph_memory
from pagedchat.runtime.step.native_runner import NativeModelRunner


def capture_first(
    runner: NativeModelRunner, vocab_size: int, max_num_seqs: int, model_len: int, max_num_tokens: int
) -> Callable[[], bool]:
    """Capture the steps of one chat, where steps can be captured.

    Args:
        runner: with its cache, whose contents do not matter.
        vocab_size: token ids are below it.
        max_num_seqs: sequences in a batch, at most.
        model_len: tokens of a sequence, at most.
        max_num_tokens: tokens of a step, at most.

    Returns:
        What captures one more whenever it is called, see `LoadedModel.prepare_more`.
    """
    runner.capture_decodes(max_num_seqs, model_len, max_num_tokens)
    if runner.decodes is not None:
        runner.decodes.prepare(1, 1)
        keep_if_right(runner, vocab_size)
    if runner.decodes is None:
        return nothing_more
    runner.prepare_prefills()
    from pagedchat.runtime.graphs.spare_time import SpareTime  # noqa: PLC0415 - a GPU's business

    free, total = torch.cuda.mem_get_info(runner.device)
    return SpareTime(
        runner.decodes,
        runner.prepare_one_more,
        max_num_seqs,
        model_len,
        lambda: torch.cuda.mem_get_info(runner.device)[0],
        min(graph_memory(total), free // 2),
    )
