"""The kernels of captured decode steps for `sanitize_kernels`, which says how they are checked."""

# mypy: disable-error-code="arg-type,call-arg,attr-defined,misc"

import torch

from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.heads_to_slots import heads_to_slots
from pagedchat.ops.clusters.cluster_linear import launch_clusters
from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.common.choices import H200_MULTIPROCESSORS, H200_SHARED_BYTES
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.products.activate import activate
from pagedchat.ops.products.add_norm import Update, add_norm
from pagedchat.ops.products.deferred_norm import DeferredRows
from pagedchat.ops.products.embed_tokens import embed_tokens
from pagedchat.ops.products.finish_logits import finish_logits
from pagedchat.ops.products.invariant_linear import invariant_linear
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.products.stream_k_linear import launch_stream_k
from pagedchat.ops.products.stream_k_plan import plan_stream_k
from pagedchat.ops.products.warpgroup_linear import deferred_rows, warpgroup_linear
from pagedchat.ops.sampling.decode_state import (
    DecodeState,
    advance_by_argmax,
    find_most_likely,
    slots_of,
)
from pagedchat.ops.sampling.sample import draw_next
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from tools.sanitize_case import NUM_KV_HEADS, Tensors, index, on_both, paged_inputs, random_tensor
from tools.sanitize_streams import stream_cases
from tools.sanitize_whole_steps import whole_step_cases

WIDTH, HEAD_SIZE, VOCAB_SIZE = 768, 64, 1003
NUM_TOKENS = 5
ALONE = ClusterPlan(64, 2, 1, 10)
"""Of a product by clusters that has each multiprocessor for itself."""
CUT = ClusterPlan(64, 2, 1, 3)
"""Of those before and behind a norm."""
LIVE = slice(4)
"""Rows that are no padding: what becomes of a query of padding is nobody's business."""


def _state(t: Tensors) -> DecodeState:
    """Of token ids, positions, lengths, block tables, step, history and arrivals."""
    return DecodeState(*t[:7])


def _state_inputs() -> Tensors:
    tables = torch.arange(NUM_TOKENS * 4, dtype=torch.int32).view(NUM_TOKENS, 4)
    numbers = [index(7, 8, 9, 10, 0), index(3, 17, 0, 50, -1), index(4, 18, 1, 51, 0)]
    return [*numbers, tables, index(6), torch.zeros(4, NUM_TOKENS, dtype=torch.int32), index(0)]


def step_cases() -> list[bool]:
    """One launch of each, or a few."""
    rows, weight = random_tensor(NUM_TOKENS, WIDTH), random_tensor(2 * 160, WIDTH) / 30
    scale, shift = 1 + random_tensor(WIDTH) / 10, random_tensor(WIDTH)
    parts = [*_product_cases(rows, weight, scale, shift), *_larger_cases(), *_token_cases(rows, scale, shift)]
    return [*parts, *stream_cases(), *whole_step_cases()]


def _product_cases(
    rows: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
) -> list[bool]:
    def plain(t: Tensors) -> Tensors:
        return [small_batch_linear(t[0], t[1], bias=t[2], residual=t[3], activation="relu")]

    def gated(t: Tensors) -> Tensors:
        norm = Norm("rms", t[2], None, 1e-5)
        return [small_batch_linear(t[0], t[1], norm=norm, activation="silu", paired=True)]

    def project(t: Tensors) -> Tensors:
        query = t[0].new_zeros(NUM_TOKENS, 2, HEAD_SIZE)
        norm = Norm("layer", t[2], t[3], 1e-5)
        qkv_to_cache(query, t[4], t[5], t[0], t[1], t[6], t[7], norm=norm, rotations=t[8])
        return [query[LIVE], t[4], t[5]]

    _, key_cache, value_cache, _, _ = paged_inputs([300], HEAD_SIZE, 1, torch.float16, 1)
    _, positions, _, tables, *_ = _state_inputs()
    qkv, turns = random_tensor(6 * HEAD_SIZE, WIDTH) / 30, torch.randn(64, HEAD_SIZE // 2, 2)
    return [
        on_both("small_batch_linear", [rows, weight, random_tensor(320), random_tensor(NUM_TOKENS, 320)], plain),
        on_both("small_batch_linear, paired", [rows, weight, scale], gated),
        on_both(
            "qkv_to_cache", [rows, qkv, scale, shift, key_cache, value_cache, tables, positions, turns], project
        ),
    ]


def _norm_between_products() -> bool:
    """By clusters, and by warpgroups."""

    def norm_between(t: Tensors) -> Tensors:
        stream, norm = t[2].clone(), Norm("rms", t[3], None, 1e-6, largest=2.0)
        if not t[0].is_cuda:
            warpgroup_linear(t[0], t[1], residual=stream, output=stream)
            return [stream, warpgroup_linear(norm.apply(stream), t[4])] * 2
        by_clusters = stream.clone()
        ahead = DeferredRows.like(stream, norm, CUT.num_sums(stream.shape[1]))
        launch_clusters(by_clusters, t[0], t[1], None, by_clusters, "none", False, CUT, ahead=ahead)
        read = t[0].new_empty(len(t[0]), len(t[4]))
        launch_clusters(read, ahead, t[4], None, None, "none", False, CUT)
        rows = deferred_rows(stream, norm, t[1], t[4])
        assert rows is not None  # noqa: S101 - of these sizes
        warpgroup_linear(t[0], t[1], residual=stream, output=stream, ahead=rows)
        return [by_clusters, read, stream, warpgroup_linear(rows, t[4])]

    of_norm = [random_tensor(40, WIDTH), random_tensor(256, WIDTH) / 30, random_tensor(40, 256)]
    of_norm += [1 + random_tensor(256) / 10, random_tensor(128, 256) / 16]
    return on_both("a norm between two products", of_norm, norm_between)


def _larger_cases() -> list[bool]:
    """What batches of some dozens launch besides."""

    def gated(t: Tensors) -> Tensors:
        return [activate(t[0], "silu", paired=True), activate(t[0], "gelu", paired=False)]

    def by_warpgroups(t: Tensors) -> Tensors:
        rows = warpgroup_linear(t[0], t[1], bias=t[2], residual=t[3], activation="relu")
        return [rows, warpgroup_linear(t[4], t[5]), warpgroup_linear(t[0], t[1], activation="silu", paired=True)]

    def invariant(t: Tensors) -> Tensors:
        return [invariant_linear(rows, t[1], t[2]) for rows in (t[0][:1], t[0][:20], t[0])]

    def by_stream_k(t: Tensors) -> Tensors:
        if not t[0].is_cuda:
            rows = warpgroup_linear(t[0], t[1][:152], residual=t[2])
            return [rows, warpgroup_linear(t[0], t[1], activation="silu", paired=True)]
        outputs = [torch.empty_like(t[2]) for _ in range(2)]
        for output, paired in zip(outputs, (False, True), strict=True):
            plan = plan_stream_k(WIDTH, 152, len(t[0]), paired, H200_MULTIPROCESSORS, H200_SHARED_BYTES)
            weight, residual = (t[1], None) if paired else (t[1][:152], t[2])
            activation = "silu" if paired else "none"
            launch_stream_k(output, t[0], weight, None, residual, activation, paired, plan)
        return outputs

    def by_clusters(t: Tensors) -> Tensors:
        rows = warpgroup_linear(t[0], t[1], residual=t[2])
        alone = torch.empty_like(t[2])
        if t[0].is_cuda:
            launch_clusters(alone, t[0], t[1], None, t[2], "none", False, ALONE)
        else:
            alone = warpgroup_linear(t[0], t[1], residual=t[2])
        return [rows, alone, warpgroup_linear(t[3], t[4], activation="silu", paired=True)]

    def wide_gates(t: Tensors) -> Tensors:
        return [warpgroup_linear(rows, t[1], activation="silu", paired=True) for rows in (t[0][:100], t[0])]

    def into_cache(t: Tensors) -> Tensors:
        query = heads_to_cache(t[0], t[1], t[2], t[3], t[4], rotations=t[5])
        return [query[LIVE], t[1], t[2]]

    def normed_into_cache(t: Tensors) -> Tensors:
        norms = HeadNorms(Norm("rms", t[6], None, 1e-6), Norm("rms", t[7], None, 1e-6))
        query = heads_to_cache(t[0], t[1], t[2], t[3], t[4], norms=norms, rotations=t[5])
        return [query[LIVE], t[1], t[2]]

    def partly_into_cache(t: Tensors) -> Tensors:
        norms = HeadNorms(Norm("layer", t[6], t[7], 1e-6), Norm("layer", t[7], t[6], 1e-6))
        query = heads_to_cache(t[0], t[1], t[2], t[3], t[4], norms=norms, rotations=t[5][:, :16].contiguous())
        return [query[LIVE], t[1], t[2]]

    def by_slot(t: Tensors) -> Tensors:
        norms = HeadNorms(Norm("rms", t[5], None, 1e-6), Norm("rms", t[5], None, 1e-6))
        return [heads_to_slots(t[0], t[1], t[2], t[3], norms=norms, turns=t[4]), t[1], t[2]]

    rows, weight = random_tensor(70, WIDTH), random_tensor(2 * 160, WIDTH) / 30
    long_rows, long_weight = random_tensor(70, 4 * WIDTH), random_tensor(96, 4 * WIDTH) / 60
    of_few_tiles = [random_tensor(40, 4 * WIDTH), random_tensor(136, 4 * WIDTH) / 60, random_tensor(40, 136)]
    of_many_tiles = [random_tensor(40, WIDTH), random_tensor(2 * 2880, WIDTH) / 30]
    _, key_cache, value_cache, _, _ = paged_inputs([300], HEAD_SIZE, 1, torch.float16, 1)
    _, positions, _, tables, *_ = _state_inputs()
    heads, turns = random_tensor(NUM_TOKENS, 6, HEAD_SIZE), torch.randn(64, HEAD_SIZE // 2, 2)
    into = [heads, key_cache, value_cache, tables, positions, turns]
    of_head, of_queries, of_keys = (1 + random_tensor(count * HEAD_SIZE) / 10 for count in (1, 2, NUM_KV_HEADS))
    chunk = random_tensor(30, 6, HEAD_SIZE)
    of_chunk = [chunk, key_cache, value_cache, torch.arange(5, 35), torch.randn(30, HEAD_SIZE // 2, 2), of_head]
    return [
        on_both("activate", [rows], gated),
        on_both(
            "warpgroup_linear",
            [rows, weight, random_tensor(320), random_tensor(70, 320), long_rows, long_weight],
            by_warpgroups,
        ),
        on_both(
            "stream_k_linear",
            [random_tensor(30, WIDTH), random_tensor(2 * 152, WIDTH) / 30, random_tensor(30, 152)],
            by_stream_k,
        ),
        on_both("cluster_linear", [*of_few_tiles, *of_many_tiles], by_clusters),
        _norm_between_products(),
        on_both("wide_gates", [random_tensor(1300, WIDTH), random_tensor(2 * 1544, WIDTH) / 30], wide_gates),
        on_both("invariant_linear", [rows, weight, random_tensor(320)], invariant),
        on_both("heads_to_cache", into, into_cache),
        on_both("heads_to_cache, each head normed", [*into, of_head, of_head], normed_into_cache),
        on_both("heads_to_cache, a part turned", [*into, of_head, of_head], partly_into_cache),
        on_both("heads_to_cache, by slots", of_chunk, by_slot),
        on_both("heads_to_cache, all heads normed", [*into, of_queries, of_keys], normed_into_cache),
    ]


def _token_cases(rows: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> list[bool]:
    def head(t: Tensors) -> Tensors:
        state, norm = _state(t), Norm("layer", t[9], t[10], 1e-5)
        logits, best = t[7].new_zeros(NUM_TOKENS, VOCAB_SIZE), torch.zeros(NUM_TOKENS, dtype=torch.int64)
        logits_argmax(state, logits, t[7], t[8], norm=norm, best=best.to(t[7].device))
        return [logits, state.positions, state.seq_lens, state.step, state.arrivals]

    def choose(t: Tensors) -> Tensors:
        state = _state(t)
        likely = torch.empty_like(state.token_ids)
        find_most_likely(likely, t[7])
        advance_by_argmax(state, t[7])
        chosen = state.token_ids.clone()
        draw_next(state, t[7], t[8])
        return [likely, chosen, state.token_ids, state.history, slots_of(state.positions, state.block_tables, 16)]

    def embed(t: Tensors) -> Tensors:
        vectors = embed_tokens(t[7], t[0], t[1], position_vectors=t[8], position_offset=2)
        rows, norm = t[7][:NUM_TOKENS], Norm("layer", t[9], t[10], 1e-5)
        sums = [add_norm(vectors, rows, norm), add_norm(vectors, Update(rows, rows, norm, 0.5), norm)]
        logits = rows.clone()
        finish_logits(logits, scale=0.5, cap=3.0)
        return [vectors, *sums, logits]

    table = random_tensor(VOCAB_SIZE, WIDTH) / 30
    drawn = pack_rows([SampleRow(temperature=number % 2, seed=number) for number in range(NUM_TOKENS)])
    return [
        on_both("logits_argmax", [*_state_inputs(), rows, table, scale, shift], head),
        on_both(
            "most_likely_tokens, argmax_rows, sample, find_slots",
            [*_state_inputs(), random_tensor(NUM_TOKENS, VOCAB_SIZE), drawn],
            choose,
        ),
        on_both(
            "embed_tokens, add_norm, finish_logits",
            [*_state_inputs(), table, random_tensor(70, WIDTH), scale, shift],
            embed,
        ),
    ]
