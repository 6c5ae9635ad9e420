"""Decode of sequences that share a prefix: the prefix read once for all, or by each for itself."""

from collections.abc import Sequence

import torch

from pagedchat.bench.kernels.decode import split_calls
from pagedchat.bench.kernels.decode_inputs import DecodeInputs
from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work
from pagedchat.bench.kernels.random_cache import DEVICE
from pagedchat.bench.kernels.shapes import PREFIX, PrefixShape
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.attention.decode_plan import own_len
from pagedchat.ops.attention.decode_shared import decode_shared

OWN_BLOCKS = "not shared"
"""Every sequence has the prefix in blocks of its own."""
SAME_BLOCKS = "shared, read by each"
"""The sequences share the blocks, but each reads them for itself, mostly from the L2 cache."""


def measure_shared_prefix(bench: Bench, shapes: Sequence[PrefixShape] = PREFIX) -> list[Figure]:
    """`decode_shared` against `decode_split`, over shared blocks and over own ones."""
    return [
        figure
        for shape in shapes
        for measure in (_measure_shared, _measure_apart)
        for figure in measure(bench, shape)
    ]


def _measure_shared(bench: Bench, shape: PrefixShape) -> list[Figure]:
    inputs = DecodeInputs.over_one_prefix(shape)
    work = Work(section="prefix", shape=str(shape), moved_bytes=shape.kv_bytes, limit_gb_s=bench.limits.copy)
    return bench.run(
        work,
        [
            Contender(name=OURS, prepare=lambda: _calls(inputs, shape), check=inputs.check),
            Contender(name=SAME_BLOCKS, prepare=lambda: split_calls(inputs), check=inputs.check),
        ],
    )


def _measure_apart(bench: Bench, shape: PrefixShape) -> list[Figure]:
    inputs = DecodeInputs.apart(shape.unshared)
    moved = shape.unshared.kv_bytes
    work = Work(section="prefix", shape=str(shape), moved_bytes=moved, limit_gb_s=bench.limits.copy)
    contender = Contender(name=OWN_BLOCKS, prepare=lambda: split_calls(inputs), check=inputs.check)
    return bench.run(work, [contender])


def _calls(inputs: DecodeInputs, shape: PrefixShape) -> list[Call]:
    shared_lens = torch.full_like(inputs.seq_lens, shape.shared)
    group_starts = torch.tensor([0, shape.batch], device=DEVICE, dtype=torch.int32)

    def call_on(set_number: int) -> Call:
        call = inputs.attention(set_number)
        return lambda: decode_shared(
            call,
            shared_lens,
            group_starts,
            max_own_len=own_len(inputs.shape.context, shape.shared),
            max_shared_len=shape.shared,
            max_group_size=shape.batch,
        )

    return [call_on(set_number) for set_number in range(len(inputs.block_tables))]
