"""`merge_attn_states`: two partial attention results into one."""

from collections.abc import Sequence

from pagedchat.bench.kernels import torch_peers, vllm_peers
from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work
from pagedchat.bench.kernels.merge_inputs import MergeInputs, MergeSet
from pagedchat.bench.kernels.shapes import MERGE, MergeShape
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.attention.merge_attn_states import merge_attn_states

_PEERS = {"torch": torch_peers.merge, "vllm": vllm_peers.merge}


def measure_merge(bench: Bench, shapes: Sequence[MergeShape] = MERGE) -> list[Figure]:
    """`merge_attn_states` and its peers at every shape."""
    return [figure for shape in shapes for figure in _measure(bench, shape)]


def _measure(bench: Bench, shape: MergeShape) -> list[Figure]:
    inputs = MergeInputs(shape)
    work = Work(section="merge", shape=str(shape), moved_bytes=shape.moved_bytes, limit_gb_s=bench.limits.copy)
    ours = Contender(name=OURS, prepare=lambda: [_call(part) for part in inputs.sets], check=inputs.check)
    return bench.run(work, [ours, *bench.peers_of(_PEERS, inputs)])


def _call(part: MergeSet) -> Call:
    return lambda: merge_attn_states(
        part.output, part.output_lse, part.prefix, part.prefix_lse, part.suffix, part.suffix_lse
    )
