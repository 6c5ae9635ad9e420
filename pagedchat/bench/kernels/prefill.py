"""Prefill attention: a prompt over its own keys and values in a paged cache, causal."""

from collections.abc import Sequence

from pagedchat.bench.kernels import flashinfer_peers, torch_peers, vllm_peers
from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work
from pagedchat.bench.kernels.prefill_inputs import PrefillInputs
from pagedchat.bench.kernels.shapes import PREFILL, PrefillShape
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.attention.call import AttentionCall
from pagedchat.ops.attention.prefill import paged_prefill

_PEERS = {"torch": torch_peers.prefill, "flashinfer": flashinfer_peers.prefill, "vllm": vllm_peers.prefill}


def measure_prefill(bench: Bench, shapes: Sequence[PrefillShape] = PREFILL) -> list[Figure]:
    """`paged_prefill` and its peers at every shape; bound by arithmetic, so one input set is enough."""
    return [figure for shape in shapes for figure in _measure(bench, shape)]


def _measure(bench: Bench, shape: PrefillShape) -> list[Figure]:
    inputs = PrefillInputs(shape)
    work = Work(section="prefill", shape=str(shape), flops=shape.flops)
    ours = Contender(name=OURS, prepare=lambda: _calls(inputs), check=inputs.check)
    return bench.run(work, [ours, *bench.peers_of(_PEERS, inputs)])


def _calls(inputs: PrefillInputs) -> list[Call]:
    cache = inputs.cache
    tensors = (inputs.query, cache.key_cache, cache.value_cache, inputs.block_tables, inputs.seq_lens)
    call = AttentionCall(*tensors, inputs.options, inputs.output)
    return [lambda: paged_prefill(call, inputs.cu_seqlens, max_query_len=inputs.shape.num_tokens)]
