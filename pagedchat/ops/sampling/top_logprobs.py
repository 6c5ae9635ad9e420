"""How likely chosen tokens were by the logits as they came, and which tokens were the most likely ones beside them.

These are the numbers of the model alone: no penalty, no temperature, no rule has touched them. Tokens are in the
order of their logits, of equals the one with the lowest id comes first; a rank is a place in that order. A GPU and
a CPU agree on tokens and ranks; log-probabilities differ by the rounding of a sum in float32.
"""

from typing import NamedTuple, Self

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import Kernel, get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import can_overlap, element_name, on_cuda, stream_of
from pagedchat.ops.sampling.kernels import LIKELY_SHAPES, MAX_LIKELY, choose_shape
from pagedchat.ops.sampling.logits import check_logits


class TopLogprobs(NamedTuple):
    """Of each row the chosen token, and after it the most likely ones, as many as it wants; what follows is left as
    it was."""

    token_ids: torch.Tensor
    """`[num_rows, 1 + most]`, int32."""
    logprobs: torch.Tensor
    """`[num_rows, 1 + most]`, float32."""
    ranks: torch.Tensor
    """`[num_rows]`, int32: of the chosen token; 1 is the most likely one."""

    @classmethod
    def empty(cls, num_rows: int, most: int, device: torch.device, *, pinned: bool = False) -> Self:
        """Room for so many rows of at most so many most likely tokens; `pinned` is host memory for a GPU."""
        return cls(
            torch.zeros(num_rows, 1 + most, dtype=torch.int32, device=device, pin_memory=pinned),
            torch.zeros(num_rows, 1 + most, dtype=torch.float32, device=device, pin_memory=pinned),
            torch.zeros(num_rows, dtype=torch.int32, device=device, pin_memory=pinned),
        )


class LookUp:
    """Looks up each row's chosen token and finds its most likely ones, for steps that follow one another: tensors
    are looked at once, and have other contents each time. On a GPU nothing waits for the host.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32, rows contiguous. No NaN.
        chosen: `[num_rows]`, int32: a token of each row.
        counts: `[num_rows]`, int32: how many of the most likely tokens a row wants, at most `MAX_LIKELY`, and no
            more than there are or than `output` has room for; below 0: nothing is written for it.
        output: written; on a GPU it may be pinned host memory.

    Raises:
        ValueError: shapes or types that do not go together, or too large a vocabulary.
    """

    def __init__(
        self, logits: torch.Tensor, chosen: torch.Tensor, counts: torch.Tensor, output: TopLogprobs
    ) -> None:
        _check(logits, chosen, counts, output)
        self._logits, self._chosen, self._counts, self._output = logits, chosen, counts, output
        if on_cuda(logits):
            self._shared = shared_rows("top_logprobs", logits)
            self._args = (
                output.token_ids.data_ptr(),
                output.logprobs.data_ptr(),
                output.ranks.data_ptr(),
                logits.data_ptr(),
                chosen.data_ptr(),
                counts.data_ptr(),
                i32(logits.shape[1]),
                logits.stride(0),
                i32(output.token_ids.shape[1]),
            )

    def launch(self) -> None:
        """Queue it once more; on a CPU do it."""
        if on_cuda(self._logits):
            kernel, num_blocks, num_threads = self._shared
            kernel.launch(num_blocks, num_threads, self._args, stream=stream_of(self._logits))
            return
        self._in_torch()

    @torch.inference_mode()
    def _in_torch(self) -> None:
        for i, count in enumerate(self._counts.tolist()):
            if count >= 0:
                _write_row(self._output, i, self._logits[i], int(self._chosen[i]), count)

    def reads(self, logits: torch.Tensor) -> bool:
        """Whether these are its logits."""
        return self._logits is logits


def top_logprobs(
    logits: torch.Tensor, chosen: torch.Tensor, counts: torch.Tensor, output: TopLogprobs
) -> TopLogprobs:
    """`LookUp` for one step: `output`."""
    LookUp(logits, chosen, counts, output).launch()
    return output


def shared_rows(stem: str, logits: torch.Tensor) -> tuple[Kernel, int, int]:
    """A kernel whose thread blocks share rows of logits: itself, how many they are, and threads of each.

    Args:
        stem: its name.
        logits: `[num_rows, vocab_size]`, on a GPU.
    """
    index, num_rows = logits.device.index, len(logits)
    cluster, num_threads = choose_shape(
        num_rows, gpu(index).num_multiprocessors, can_overlap(logits.device), LIKELY_SHAPES
    )
    element = element_name(logits.dtype)
    kernel = get_kernel(stem, index, ELEMENT=element, CLUSTER=cluster, NUM_THREADS=num_threads)
    return kernel, num_rows * cluster, num_threads


def likeliest(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """In torch, of one row the `count` most likely tokens, and their log-probabilities.

    Args:
        logits: `[vocab_size]`.
        count: not below 0.
    """
    values, log_of_sum = _normalised(logits)
    if count == 0:
        return torch.empty(0, dtype=torch.int64), values[:0]
    bar = values.topk(count).values[-1]
    candidates = (values >= bar).nonzero()[:, 0]  # in the order of their ids
    token_ids = candidates[values[candidates].sort(descending=True, stable=True).indices[:count]]
    return token_ids, values[token_ids] - values.amax() - log_of_sum


def _normalised(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A row in float32, and the logarithm of its sum as parts of the largest one."""
    values = logits.float()
    return values, (values - values.amax()).exp_().sum(dtype=torch.float64).log().float()


def _write_row(output: TopLogprobs, i: int, logits: torch.Tensor, chosen: int, count: int) -> None:
    values, log_of_sum = _normalised(logits)
    of_chosen = values[chosen]
    output.token_ids[i, 0], output.logprobs[i, 0] = chosen, of_chosen - values.amax() - log_of_sum
    output.ranks[i] = 1 + int((values > of_chosen).sum()) + int((values[:chosen] == of_chosen).sum())
    output.token_ids[i, 1 : 1 + count], output.logprobs[i, 1 : 1 + count] = likeliest(logits, count)


def _check(logits: torch.Tensor, chosen: torch.Tensor, counts: torch.Tensor, output: TopLogprobs) -> None:
    check_logits(logits)
    num_rows = len(logits)
    width = output.token_ids.shape[1]
    if width > 1 + MAX_LIKELY:
        raise ValueError(f"output has room for {width - 1} tokens, expected at most {MAX_LIKELY}")
    for name, tensor in (("chosen", chosen), ("counts", counts), ("ranks", output.ranks)):
        check_shape(name, tensor, num_rows)
        check_dtype(name, tensor, torch.int32)
    check_shape("token_ids", output.token_ids, num_rows, width)
    check_shape("logprobs", output.logprobs, num_rows, width)
    check_dtype("token_ids", output.token_ids, torch.int32)
    check_dtype("logprobs", output.logprobs, torch.float32)
    for name, tensor in {**output._asdict(), "chosen": chosen, "counts": counts}.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")
