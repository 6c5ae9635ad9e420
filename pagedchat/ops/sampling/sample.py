"""The next token of each row of logits: penalties, temperature, min-p, top-k, top-p, one draw.

A row's token follows from its own logits, parameters, seed and position alone. Probabilities are whole numbers
(kernels/sampling/token_weight.cuh), so the sums that decide are exact: the same logits give the same token in any
batch, on any GPU and in the torch version. Logits themselves differ between devices and batch sizes in their last
bits, where a model's matrix products round differently; that is all that can change a seed's text (and
`batch_invariant` leaves only the devices).

Top-k as in Fan et al. 2018, top-p in Holtzman et al. 2019, min-p in Nguyen et al. 2024, the repetition penalty in
Keskar et al. 2019, presence and frequency penalties as in OpenAI's API. Random numbers: Philox4x32-10.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import address, can_overlap, element_name, on_cuda, stream_of
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.kernels import choose_shape
from pagedchat.ops.sampling.logits import check_logits
from pagedchat.ops.sampling.sample_rows import ROW_WORDS, unpack_rows
from pagedchat.ops.sampling.sample_torch import count_token, sample_row
from pagedchat.ops.sampling.token_mask import TokenMasks


def sample(
    logits: torch.Tensor,
    rows: torch.Tensor,
    positions: torch.Tensor,
    counts: torch.Tensor | None = None,
    *,
    count_drawn: bool = False,
    output: torch.Tensor | None = None,
) -> torch.Tensor:
    """Draw one token for each row. On a GPU nothing waits for the host, so a CUDA graph may capture it.

    Tokens whose logits are apart by less than the 2^18th part of `temperature * ln 2` count as equally likely, and
    of equals those with lower ids come first. A token 2^31 times less likely than the best one is never drawn.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32, rows contiguous; not changed. No NaN.
        rows: `[num_rows, ROW_WORDS]`, int32: `pack_rows` of the rows' parameters.
        positions: `[num_rows]`, int32: position in its sequence of each token to be drawn.
        counts: `[num_counts, vocab_size]`, int16: how often each token is in the output, plus `IN_PROMPT` if it
            is in the prompt. Rows refer to it by `counts_row`. `None`: no row has penalties.
        count_drawn: whether the drawn tokens are added to their rows' counts.
        output: `[num_rows]`, int32, written, but for rows whose token stays; a new one by default.

    Returns:
        `output`: the token ids.

    Raises:
        ValueError: shapes or types that do not go together, or too large a vocabulary.
    """
    _check(logits, rows, positions, counts, output)
    target = torch.empty(len(logits), dtype=torch.int32, device=logits.device) if output is None else output
    if on_cuda(logits):
        _Launch(logits, rows, positions, counts, count_drawn, target, None, None).queue()
    else:
        _in_torch(logits, rows, positions, counts, count_drawn, target, None)
    return target


class NextDraw:
    """Draws the tokens by which a state should have been moved on, in place of those by which it just was, and
    counts them; for steps that follow one another, whose tensors are looked at once.

    Args:
        state: its token ids and its history are written.
        logits, rows, counts: as of `sample`, a row for each of the state.
        masks: which tokens may be drawn at all; None: all of them.

    Raises:
        ValueError: as of `sample`, a state of other rows, or masks that do not go with them.
    """

    def __init__(
        self,
        state: DecodeState,
        logits: torch.Tensor,
        rows: torch.Tensor,
        counts: torch.Tensor | None = None,
        masks: TokenMasks | None = None,
    ) -> None:
        state.check()
        check_shape("logits", logits, len(state.token_ids), None)
        # The positions are moved on by now: they are those of the tokens to be drawn.
        _check(logits, rows, state.positions, counts, state.token_ids)
        if masks is not None:
            masks.check(logits)
        self._state, self._logits, self._rows, self._counts, self._masks = state, logits, rows, counts, masks
        if on_cuda(logits):
            self._launch = _Launch(logits, rows, state.positions, counts, True, state.token_ids, state, masks)

    def launch(self) -> None:
        """Queue it once more; on a CPU do it."""
        if on_cuda(self._logits):
            self._launch.queue()
            return
        state = self._state
        tokens = state.token_ids.clone()
        _in_torch(self._logits, self._rows, state.positions, self._counts, True, tokens, self._masks)
        state.replace(tokens)


def draw_next(
    state: DecodeState,
    logits: torch.Tensor,
    rows: torch.Tensor,
    counts: torch.Tensor | None = None,
    masks: TokenMasks | None = None,
) -> None:
    """`NextDraw` for one step."""
    NextDraw(state, logits, rows, counts, masks).launch()


class _Launch:
    """Of the kernel, the same again at each `queue`."""

    def __init__(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        positions: torch.Tensor,
        counts: torch.Tensor | None,
        count_drawn: bool,
        output: torch.Tensor,
        state: DecodeState | None,
        masks: TokenMasks | None,
    ) -> None:
        num_rows, vocab_size = logits.shape
        num_multiprocessors = gpu(logits.device.index).num_multiprocessors
        cluster, num_threads = choose_shape(num_rows, num_multiprocessors, can_overlap(logits.device))
        element, index = element_name(logits.dtype), logits.device.index
        self._kernel = get_kernel("sample", index, ELEMENT=element, CLUSTER=cluster, NUM_THREADS=num_threads)
        self._grid, self._num_threads, self._logits = (cluster, num_rows), num_threads, logits
        self._args = (
            output.data_ptr(),
            logits.data_ptr(),
            rows.data_ptr(),
            positions.data_ptr(),
            address(counts),
            0 if masks is None else masks.rows.data_ptr(),
            0 if masks is None else masks.bits.data_ptr(),
            0 if state is None else state.history.data_ptr(),
            0 if state is None else state.step.data_ptr(),
            i32(vocab_size),
            logits.stride(0),
            i32(count_drawn),
            i32(0 if state is None else len(state.history)),
        )

    def queue(self) -> None:
        self._kernel.launch(self._grid, self._num_threads, self._args, stream=stream_of(self._logits))


def _in_torch(
    logits: torch.Tensor,
    rows: torch.Tensor,
    positions: torch.Tensor,
    counts: torch.Tensor | None,
    count_drawn: bool,
    output: torch.Tensor,
    masks: TokenMasks | None,
) -> None:
    for i, (row, position) in enumerate(zip(unpack_rows(rows), positions.tolist(), strict=True)):
        if row.top_k < 0:
            continue
        of_row = logits[i] if masks is None else masks.of(i, logits[i])
        token_id = sample_row(of_row, row, position & 0xFFFFFFFF, counts)
        output[i] = token_id
        if count_drawn and counts is not None and row.counts_row >= 0:
            count_token(counts[row.counts_row], token_id)


def _check(
    logits: torch.Tensor,
    rows: torch.Tensor,
    positions: torch.Tensor,
    counts: torch.Tensor | None,
    output: torch.Tensor | None,
) -> None:
    check_logits(logits)
    num_rows, vocab_size = logits.shape
    check_shape("rows", rows, num_rows, ROW_WORDS)
    check_shape("positions", positions, num_rows)
    others = {"rows": (rows, torch.int32), "positions": (positions, torch.int32)}
    if counts is not None:
        check_shape("counts", counts, None, vocab_size)
        others["counts"] = counts, torch.int16
    if output is not None:
        check_shape("output", output, num_rows)
        others["output"] = output, torch.int32
    for name, (tensor, dtype) in others.items():
        check_dtype(name, tensor, dtype)
        if tensor.device != logits.device or not tensor.is_contiguous():
            raise ValueError(f"{name} is on {tensor.device}, expected it on {logits.device} and contiguous")
