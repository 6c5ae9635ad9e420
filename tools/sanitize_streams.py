"""The kernels of decode steps that stream large weights, for `sanitize_kernels`, which says how they are run."""

# mypy: disable-error-code="arg-type,call-arg,misc"

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.ops.sampling.decode_state import DecodeState
from tools.sanitize_case import NUM_KV_HEADS, Tensors, index, on_both, paged_inputs, random_tensor

WIDTH, HEAD_SIZE, VOCAB_SIZE = 2048, 64, 2051
"""The least that streams; the vocabulary is no whole units of 8 rows."""
NUM_TOKENS, NUM_HEADS = 3, 28
LIVE = slice(2)


def stream_cases() -> list[bool]:
    """One launch of each."""
    rows, weight = random_tensor(NUM_TOKENS, WIDTH), random_tensor(WIDTH, WIDTH) / 45
    scale, shift = 1 + random_tensor(WIDTH) / 10, random_tensor(WIDTH)
    return [*_linear_cases(rows, weight, scale), *_end_cases(rows, weight, scale, shift)]


def _linear_cases(rows: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> list[bool]:
    def plain(t: Tensors) -> Tensors:
        return [small_batch_linear(t[0], t[1], bias=t[2], residual=t[3], activation="relu")]

    def gated(t: Tensors) -> Tensors:
        return [small_batch_linear(t[0], t[1], norm=Norm("rms", t[2], None, 1e-5), activation="silu", paired=True)]

    def few_bits(t: Tensors) -> Tensors:
        rows = small_batch_linear(t[0], QuantizedWeight(8, WIDTH, t[1], t[2]), bias=t[3])
        return [rows, small_batch_linear(rows, QuantizedWeight(4, 128, t[4], t[5], t[6]))]

    bias, residual = random_tensor(WIDTH), random_tensor(NUM_TOKENS, WIDTH)
    in_8, in_4 = quantize(weight.float(), 8, WIDTH), quantize(weight.float(), 4, 128)
    minimums = torch.zeros_like(in_4.scales) if in_4.minimums is None else in_4.minimums
    long_rows, long_weight = random_tensor(NUM_TOKENS, 4 * WIDTH), random_tensor(WIDTH, 4 * WIDTH) / 90
    short_rows, short_weight = (
        random_tensor(NUM_TOKENS, 2 * WIDTH + 776),
        random_tensor(WIDTH, 2 * WIDTH + 776) / 70,
    )
    return [
        on_both("streamed_linear", [rows, weight, bias, residual], plain),
        on_both("streamed_linear, long rows", [long_rows, long_weight, bias, residual], plain),
        on_both("streamed_linear, a short last stage", [short_rows, short_weight, bias, residual], plain),
        on_both("streamed_linear, paired", [rows, weight, scale], gated),
        *(
            on_both(name, [some, in_8.digits, in_8.scales, bias, in_4.digits, in_4.scales, minimums], few_bits)
            for name, some in (
                ("streamed_linear, few bits", rows),
                ("streamed_linear, few bits, one row", rows[:1]),
            )
        ),
    ]


def _apart(weight: torch.Tensor) -> list[torch.Tensor]:
    """Queries and keys in 4 bits, values in 8: digits, scales, and of the former minimums."""
    values = NUM_KV_HEADS * HEAD_SIZE
    in_4, in_8 = quantize(weight[:-values].float(), 4, 128), quantize(weight[-values:].float(), 8, WIDTH)
    minimums = torch.zeros_like(in_4.scales) if in_4.minimums is None else in_4.minimums
    return [in_4.digits, in_4.scales, minimums, in_8.digits, in_8.scales]


def _end_cases(rows: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> list[bool]:
    def project(t: Tensors) -> Tensors:
        query = t[0].new_zeros(NUM_TOKENS, NUM_HEADS, HEAD_SIZE)
        norm = Norm("layer", t[2], t[3], 1e-5)
        qkv_to_cache(query, t[4], t[5], t[0], t[1], t[6], t[7], norm=norm, rotations=t[8])
        return [query[LIVE], t[4], t[5]]

    def head(t: Tensors) -> Tensors:
        state, norm = DecodeState(*t[:7]), Norm("rms", t[9], None, 1e-5)
        logits, best = t[7].new_zeros(NUM_TOKENS, VOCAB_SIZE), torch.zeros(NUM_TOKENS, dtype=torch.int64)
        logits_argmax(state, logits, t[7], t[8], norm=norm, best=best.to(t[7].device))
        return [logits, state.positions, state.seq_lens, state.step, state.arrivals]

    def apart(t: Tensors) -> Tensors:
        query, norm = t[0].new_zeros(NUM_TOKENS, NUM_HEADS, HEAD_SIZE), Norm("layer", t[2], t[3], 1e-5)
        first, values = QuantizedWeight(4, 128, *t[9:12]), QuantizedWeight(8, WIDTH, *t[12:14])
        qkv_to_cache(
            query, t[4], t[5], t[0], first, t[6], t[7], values=values, norm=norm, rotations=t[8], overlap=True
        )
        return [query[LIVE], t[4], t[5]]

    _, key_cache, value_cache, _, _ = paged_inputs([300], HEAD_SIZE, 1, torch.float16, 1)
    tables = torch.arange(NUM_TOKENS * 4, dtype=torch.int32).view(NUM_TOKENS, 4)
    positions, turns = index(3, 17, -1), torch.randn(64, HEAD_SIZE // 2, 2)
    history = torch.zeros(4, NUM_TOKENS, dtype=torch.int32)
    state = [index(7, 8, 9), positions, index(4, 18, 0), tables, index(6), history, index(0)]
    table = random_tensor(VOCAB_SIZE, WIDTH) / 45
    return [
        on_both(
            "streamed_qkv", [rows, weight, scale, shift, key_cache, value_cache, tables, positions, turns], project
        ),
        on_both(
            "streamed_qkv, values apart",
            [rows, weight, scale, shift, key_cache, value_cache, tables, positions, turns, *_apart(weight)],
            apart,
        ),
        on_both("streamed_vocabulary", [*state, rows, table, scale], head),
    ]
