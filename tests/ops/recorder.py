"""Runs the CUDA side of the ops without a GPU: launches do nothing, what would have been compiled is noted down."""

import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType

import pytest
import torch

import pagedchat.ops
from pagedchat.jit.arguments import Argument
from pagedchat.jit.driver import Gpu
from pagedchat.jit.variant import Constant, Variant
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_shared import decode_shared
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_split import decode_split
from pagedchat.ops.attention.merge_attn_states import merge_attn_states
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.copy_blocks import copy_blocks
from pagedchat.ops.cache.gather_cached_kv import gather_cached_kv
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.heads_to_slots import heads_to_slots
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.products.activate import activate
from pagedchat.ops.products.add_norm import Update, add_norm
from pagedchat.ops.products.embed_tokens import embed_tokens
from pagedchat.ops.products.finish_logits import finish_logits
from pagedchat.ops.products.invariant_linear import invariant_linear
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.products.warpgroup_linear import warpgroup_linear
from pagedchat.ops.sampling.choose_beams import choose_beams
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax, find_most_likely, slots_of
from pagedchat.ops.sampling.row_rules import RuleRow, apply_rules, pack_rules
from pagedchat.ops.sampling.sample import sample
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.ops.sampling.top_logprobs import TopLogprobs, top_logprobs
from pagedchat.ops.screening.screen import screen_of
from pagedchat.ops.screening.screened_argmax import screened_argmax
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import plan_clustered, plan_persistent
from pagedchat.ops.whole_step.screened_head import screen_head
from tests.ops.sampling.choose_beams_case import make_case
from tests.ops.whole_step.persistent_case import SHAPES, random_model, random_state

NUM_KV_HEADS = 2
SHARED_BYTES = {
    (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 9): 99, (9, 0): 227, (10, 0): 227, (12, 0): 99,
}  # fmt: skip
"""KiB that a thread block can have, by compute capability; from the CUDA C++ programming guide."""


Launches = dict[tuple[Variant, str], tuple[Argument, ...]]
"""Arguments of the last launch of each variant and entry point."""


class _NoKernel:
    """Takes every launch and notes its arguments."""

    def __init__(self, launches: Launches, variant: Variant, entry: str) -> None:
        self._launches, self._key = launches, (variant, entry)

    def launch(self, _grid: object, _block: object, args: tuple[Argument, ...], **_options: object) -> None:
        self._launches[self._key] = tuple(args)

    def allow_shared(self, _num_bytes: int) -> None:
        pass

    def active_clusters(self, _cluster: int, _block_threads: int, _shared_bytes: int = 0) -> int:
        """As many as anybody wants."""
        return 1 << 20

    def prefer_shared(self) -> None:
        pass


@contextmanager
def recorded_launches(capability: tuple[int, int]) -> Iterator[Launches]:
    """What the ops launch inside the `with`, as if their tensors lay on a GPU with `capability`."""
    found: Launches = {}

    def get_kernel(stem: str, _device: object, entry: str | None = None, **constants: Constant) -> _NoKernel:
        return _NoKernel(found, Variant.of(stem, **constants), entry or stem)

    device = Gpu(0, "NVIDIA Test", capability, 1 << 34, 40, SHARED_BYTES[capability] << 10)
    stand_ins = {
        "get_kernel": get_kernel,
        "gpu": lambda _index: device,
        "on_cuda": lambda *_tensors: True,
        "can_overlap": lambda _device: capability >= (9, 0),
        "current_stream": lambda _device: 0,
        "stream_of": lambda _tensor: 0,
        "arrival_counters": lambda _device, count, *_: torch.empty(count, dtype=torch.int32),
        "handover_words": lambda _device, count: torch.empty(count, dtype=torch.int32),
        "compute_capability": lambda _device: capability,
        "tensor_map": lambda *_: bytes(128),
    }
    with pytest.MonkeyPatch.context() as patch:
        for module in _modules():
            for name, stand_in in stand_ins.items():
                if hasattr(module, name):
                    patch.setattr(module, name, stand_in)
        yield found


@cache
def _modules() -> list[ModuleType]:
    """All of the ops."""
    found = pkgutil.walk_packages(pagedchat.ops.__path__, "pagedchat.ops.")
    return [import_module(module.name) for module in found]


def decode(
    dtype: torch.dtype,
    head_size: int,
    block_size: int,
    group_size: int,
    options: AttentionOptions,
    tensor_cores: bool,
) -> None:
    """Batches of one and many sequences, short and long, with and without a shared prefix."""
    for num_seqs in (1, 64):
        for max_len in (1, 500, 100_000):
            tensors = _tensors(num_seqs, num_seqs, dtype, head_size, block_size, group_size)
            call = AttentionCall.to_new(*tensors, options)
            if not tensor_cores:
                decode_simt(call)
                continue
            decode_split(call, max_seq_len=max_len)
            if options.sliding_window is None:
                shared = {"max_own_len": max_len, "max_shared_len": block_size, "max_group_size": num_seqs}
                numbers = torch.empty(num_seqs, dtype=torch.int32), torch.empty(2, dtype=torch.int32)
                decode_shared(call, *numbers, **shared)


def prefill(
    dtype: torch.dtype,
    head_size: int,
    block_size: int,
    group_size: int,
    options: AttentionOptions,
    *,
    batch_invariant: bool = False,
) -> None:
    """Short and long chunks, few and many of them."""
    for num_seqs in (1, 16):
        for max_query_len in (2, 20, 64, 2048):
            tensors = _tensors(num_seqs * 2, num_seqs, dtype, head_size, block_size, group_size)
            cu_seqlens_q = torch.arange(0, 2 * num_seqs + 1, 2, dtype=torch.int32)
            call = AttentionCall.to_new(*tensors, options)
            paged_prefill(call, cu_seqlens_q, max_query_len=max_query_len, batch_invariant=batch_invariant)


def write(dtype: torch.dtype, head_size: int, block_size: int) -> None:
    """What goes into the cache and around in it."""
    _, key_cache, value_cache, *_ = _tensors(1, 1, dtype, head_size, block_size, 1)
    ids = torch.zeros(1, dtype=torch.int64)
    for num_tokens in (1, 1000):
        key = torch.empty(num_tokens, NUM_KV_HEADS, head_size, dtype=dtype)
        slots = torch.zeros(num_tokens, dtype=torch.int64)
        reshape_and_cache(key, key, key_cache, value_cache, slots)
    copy_blocks(torch.empty(1, 2, 2, NUM_KV_HEADS * head_size * block_size, dtype=dtype), ids, ids + 1)


def gather_and_merge(dtype: torch.dtype, head_size: int, block_size: int) -> None:
    """What no step launches."""
    _, key_cache, value_cache, tables, _ = _tensors(1, 1, dtype, head_size, block_size, 1)
    key, _ = gather_cached_kv(key_cache, value_cache, tables, torch.zeros(2, dtype=torch.int32), 8)
    lse = torch.empty(len(key), NUM_KV_HEADS)
    merge_attn_states(key, lse, key, lse, key, lse)


def draw(dtype: torch.dtype) -> None:
    """The next tokens of few rows and of many."""
    for num_rows in (1, 20, 256):
        rows = pack_rows([SampleRow()] * num_rows)
        sample(torch.empty(num_rows, 50, dtype=dtype), rows, torch.zeros(num_rows, dtype=torch.int32))


def tell_and_rule(dtype: torch.dtype) -> None:
    """What requests ask for that are told of tokens, have rules for them, or search: few rows and many."""
    for num_rows in (1, 20, 256):
        logits, numbers = torch.empty(num_rows, 50, dtype=dtype), torch.zeros(num_rows, dtype=torch.int32)
        top_logprobs(logits, numbers, numbers, TopLogprobs.empty(num_rows, 5, logits.device))
        choose_beams(*make_case([1], 0, num_rows - 1, "cpu", dtype=dtype))
        ruled = apply_rules(logits, pack_rules([RuleRow({1: 1.0})] * num_rows), numbers)
        sample(ruled, pack_rows([SampleRow()] * num_rows), numbers)


def decode_step(dtype: torch.dtype, head_size: int, block_size: int) -> None:
    """What a captured step of one sequence launches, besides its attention."""
    query, key_cache, value_cache, tables, numbers = _tensors(1, 1, dtype, head_size, block_size, 1)
    state = DecodeState(numbers, numbers, numbers, tables, numbers, numbers[None], numbers)
    weight = torch.empty(32, 768, dtype=dtype)
    logits = torch.empty(1, 32, dtype=dtype)
    slots_of(state.positions, tables, block_size)
    advance_by_argmax(state, logits)
    find_most_likely(numbers, logits)
    rows = embed_tokens(weight, state.token_ids, state.positions)
    norm = Norm("rms", rows[0], None, 1e-5)
    add_norm(rows, rows, norm)
    add_norm(rows, Update(rows, norm=norm), norm)
    activate(rows, "silu", paired=True)
    finish_logits(logits, scale=1.0, cap=30.0)
    turns = torch.empty(8, head_size // 2, 2)
    heads = torch.empty(1, 3 * NUM_KV_HEADS, head_size, dtype=dtype)
    of_head, of_all = (Norm("rms", torch.empty(n * head_size, dtype=dtype), None, 1e-5) for n in (1, NUM_KV_HEADS))
    slots = torch.zeros(1, dtype=torch.int64)
    for norms in (None, HeadNorms(of_head, of_head), HeadNorms(of_all, of_all)):
        for rotations in (None, turns):
            into = key_cache, value_cache, tables, state.positions
            heads_to_cache(heads, *into, norms=norms, rotations=rotations)
            if norms or rotations is not None:
                of_tokens = None if rotations is None else turns[:1]
                heads_to_slots(heads, key_cache, value_cache, slots, norms=norms, turns=of_tokens)
    layer = replace(of_head, kind="layer")
    heads_to_cache(heads, *into, rotations=turns[:, :16])
    heads_to_cache(heads, *into, norms=HeadNorms(layer, layer), rotations=turns[:, :16])
    heads_to_cache(heads, *into, norms=HeadNorms(layer, layer), rotations=turns)
    of_part = turns[:1, :16].contiguous()
    heads_to_slots(heads, key_cache, value_cache, slots, norms=HeadNorms(layer, layer), turns=of_part)
    if dtype == torch.float32:
        return
    qkv = torch.empty(3 * NUM_KV_HEADS * head_size, 768, dtype=dtype)
    caches = (key_cache, value_cache)
    qkv_to_cache(query, *caches, rows, qkv, tables, state.positions, norm=norm, rotations=turns)
    small_batch_linear(rows, weight, norm=norm, activation="relu")
    small_batch_linear(rows, weight, activation="silu", paired=True)
    warpgroup_linear(rows, qkv)
    invariant_linear(rows, qkv)
    logits_argmax(state, logits, rows, weight, norm=norm, best=torch.zeros(1, dtype=torch.int64))
    screened_argmax(state, rows, screen_of(weight), norm=norm)
    streamed_step(dtype, head_size, state, caches)
    whole_step(dtype)


def streamed_step(
    dtype: torch.dtype, head_size: int, state: DecodeState, caches: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """The same with weights that are large."""
    width = 2048
    rows, weight = torch.empty(1, width, dtype=dtype), torch.empty(width, width, dtype=dtype)
    query = torch.empty(1, width // head_size - 2 * NUM_KV_HEADS, head_size, dtype=dtype)
    norm = Norm("rms", rows[0], None, 1e-5)
    qkv_to_cache(query, *caches, rows, weight, state.block_tables, state.positions, norm=norm)
    small_batch_linear(rows, weight, residual=rows)
    logits_argmax(state, rows.clone(), rows, weight, norm=norm, best=torch.zeros(1, dtype=torch.int64))


def whole_step(dtype: torch.dtype) -> None:
    """A decode step in one launch, short and long contexts, in clusters where there is a plan for them."""
    for family, shape in SHAPES.items():
        model = random_model(family, dtype)
        plans = [plan_persistent(shape, 1, context_len, 132, 227 << 10) for context_len in (256, 2048)]
        assert None not in plans
        for plan in filter(None, [*plans, plan_clustered(shape, 1, 256, 132, 227 << 10)]):
            logits = torch.empty(1, len(model.tensors.head), dtype=dtype)
            PersistentDecode(model, 1, plan)(random_state([5]), logits)
            screened = plan.screened(shape, 1, len(model.tensors.head), 227 << 10)
            assert screened is not None
            PersistentDecode(model, 1, screened, screen_head(model.tensors.head, model.tensors.last_norm))(
                random_state([5])
            )


def _tensors(
    num_tokens: int, num_seqs: int, dtype: torch.dtype, head_size: int, block_size: int, group_size: int
) -> tuple[torch.Tensor, ...]:
    """Query, key cache, value cache, block tables and lengths; contents do not matter."""
    x = 16 // dtype.itemsize
    return (
        torch.empty(num_tokens, NUM_KV_HEADS * group_size, head_size, dtype=dtype),
        torch.empty(2, NUM_KV_HEADS, head_size // x, block_size, x, dtype=dtype),
        torch.empty(2, NUM_KV_HEADS, head_size, block_size, dtype=dtype),
        torch.empty(num_seqs, 4096 // block_size, dtype=torch.int32),
        torch.empty(num_seqs, dtype=torch.int32),
    )
