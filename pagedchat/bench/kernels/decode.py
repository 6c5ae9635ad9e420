"""Decode attention: one token for each sequence of a batch, over a paged cache."""

from collections.abc import Sequence

from pagedchat.bench.kernels import flashinfer_peers, torch_peers, vllm_peers
from pagedchat.bench.kernels.decode_inputs import DecodeInputs
from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work
from pagedchat.bench.kernels.shapes import DECODE, DecodeShape
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.attention.decode_split import decode_split

_PEERS = {"torch": torch_peers.decode, "flashinfer": flashinfer_peers.decode, "vllm": vllm_peers.decode}


def measure_decode(bench: Bench, shapes: Sequence[DecodeShape] = DECODE) -> list[Figure]:
    """`decode_split` and its peers at every shape."""
    return [figure for shape in shapes for figure in _measure(bench, shape)]


def _measure(bench: Bench, shape: DecodeShape) -> list[Figure]:
    inputs = DecodeInputs.apart(shape)
    work = Work(section="decode", shape=str(shape), moved_bytes=shape.kv_bytes, limit_gb_s=bench.limits.copy)
    ours = Contender(name=OURS, prepare=lambda: split_calls(inputs), check=inputs.check)
    return bench.run(work, [ours, *bench.peers_of(_PEERS, inputs)])


def split_calls(inputs: DecodeInputs) -> list[Call]:
    """`decode_split` on every set of sequences."""
    shape = inputs.shape

    def call_on(set_number: int) -> Call:
        call = inputs.attention(set_number)
        return lambda: decode_split(call, max_seq_len=shape.context, num_tokens=shape.batch * shape.context)

    return [call_on(set_number) for set_number in range(len(inputs.block_tables))]
