"""What stands before, behind and between products for `sanitize_kernels`, which says how kernels are checked: gates
and values of many rows, products that are the same in any company, activations, norms, logits, and heads on their
way into the cache.
"""

from functools import partial

import torch

from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.heads_to_slots import heads_to_slots
from pagedchat.ops.cache.layout import key_cache_shape, value_cache_shape
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.products.activate import activate
from pagedchat.ops.products.add_norm import Update, add_norm
from pagedchat.ops.products.finish_logits import finish_logits
from pagedchat.ops.products.invariant_linear import invariant_linear
from pagedchat.ops.products.library_linear import library_linear
from pagedchat.ops.products.wide_gates import launch_wide_gates
from pagedchat.ops.products.wide_plan import WidePlan
from tools.sanitize_case import BLOCK_SIZE, NUM_KV_HEADS, Tensors, index, on_both, random_tensor

HEAD_SIZE, QUERY_HEADS = 64, 5
WIDE = [
    ((70, 136, 72), WidePlan(128, 64, 2, False, 3, 4)),
    ((300, 200, 104), WidePlan(128, 64, 1, True, 4, 4)),
    ((520, 72, 40), WidePlan(256, 64, 1, False, 3, 2)),
]
"""Tokens, inner dimension and columns, and how they are cut: tiles that are not whole, turns, two products each."""


def product_cases() -> list[bool]:
    """All but heads."""
    results = []
    for (num_tokens, in_features, out_features), plan in WIDE:
        rows, weight = random_tensor(num_tokens, in_features), random_tensor(2 * out_features, in_features) / 12
        results.append(on_both(f"wide_gates {num_tokens}", [rows, weight], partial(_wide, plan=plan)))
    for num_rows in (1, 9, 70):
        tensors = [random_tensor(num_rows, 192), random_tensor(72, 192) / 14, random_tensor(72)]
        results.append(on_both(f"invariant_linear {num_rows}", tensors, lambda t: [invariant_linear(*t)]))
    gates, logits = random_tensor(37, 2 * 136), random_tensor(5, 1000)
    results.append(on_both("activate", [gates], _activated))
    results.append(on_both("finish_logits", [logits], _finished))
    added = [random_tensor(37, 192), random_tensor(37, 192), 1 + random_tensor(192) / 4, 1 + random_tensor(192) / 4]
    return [*results, on_both("add_norm of a norm, scaled", added, _added)]


def head_cases() -> list[bool]:
    """Of a few tokens, and of so many that two of them share a thread block."""
    results = []
    for num_tokens in (5, 513):
        for kind in ("", "rms", "layer", "all heads"):
            for op in (_to_cache, _to_slots):
                name = f"heads{op.__name__} {num_tokens} {kind or 'no norms'}"
                results.append(on_both(name, _heads(num_tokens, kind), partial(op, kind=kind)))
    return results


def _wide(t: Tensors, plan: WidePlan) -> Tensors:
    rows, weight = t
    if not rows.is_cuda:
        return [library_linear(rows, weight, activation="silu", paired=True)]
    output = rows.new_empty(len(rows), len(weight) // 2)
    launch_wide_gates(output, rows, weight, "silu", plan)
    return [output]


def _activated(t: Tensors) -> Tensors:
    return [activate(t[0], "silu", paired=True), activate(t[0].clone(), "gelu_tanh", paired=False)]


def _finished(t: Tensors) -> Tensors:
    finish_logits(t[0], scale=0.5, cap=30.0)
    return t


def _added(t: Tensors) -> Tensors:
    hidden, update, *weights = t
    own, end = (Norm("rms", weight, None, 1e-6) for weight in weights)
    return [add_norm(hidden, Update(update, None, end, 0.5), own), hidden]


def _heads(num_tokens: int, kind: str) -> Tensors:
    """Heads, both caches, angles, block tables, positions, slots, and what norms multiply by."""
    num_blocks = -(-num_tokens // BLOCK_SIZE) + 1
    positions = torch.arange(num_tokens, dtype=torch.int32)
    positions[1] = -1
    angles = torch.rand(num_blocks * BLOCK_SIZE, HEAD_SIZE // 2, 2)
    widths = [HEAD_SIZE * (count if kind == "all heads" else 1) for count in (QUERY_HEADS, NUM_KV_HEADS)]
    return [
        random_tensor(num_tokens, QUERY_HEADS + 2 * NUM_KV_HEADS, HEAD_SIZE),
        torch.zeros(key_cache_shape(num_blocks, NUM_KV_HEADS, HEAD_SIZE, BLOCK_SIZE, torch.float16)).half(),
        torch.zeros(value_cache_shape(num_blocks, NUM_KV_HEADS, HEAD_SIZE, BLOCK_SIZE)).half(),
        angles,
        index(*range(num_blocks)).repeat(num_tokens, 1),
        positions,
        *(1 + random_tensor(width) / 4 for width in widths),
    ]


def _norms(t: Tensors, kind: str) -> HeadNorms | None:
    if not kind:
        return None
    query, key = (Norm("layer" if kind == "layer" else "rms", weight, None, 1e-6) for weight in t[6:8])
    return HeadNorms(query, key)


def _to_cache(t: Tensors, kind: str) -> Tensors:
    query = heads_to_cache(t[0], t[1], t[2], t[4], t[5], norms=_norms(t, kind), rotations=t[3])
    return [query[2:], *t[1:3]]


def _to_slots(t: Tensors, kind: str) -> Tensors:
    turns = t[3][t[5].clamp(min=0).long()].contiguous()
    query = heads_to_slots(t[0], t[1], t[2], t[5].long(), norms=_norms(t, kind), turns=turns)
    return [query[2:], *t[1:3]]
