"""Products of a decode step, and what comes before and after them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from pagedchat.ops.cache.layout import key_cache_shape, value_cache_shape
from pagedchat.ops.common.choices import Activation
from pagedchat.ops.products import few_rows_plan, streamed_plan
from pagedchat.ops.products.activate import activate
from pagedchat.ops.products.add_norm import Update, add_norm
from pagedchat.ops.products.embed_tokens import embed_tokens
from pagedchat.ops.products.finish_logits import finish_logits
from pagedchat.ops.products.invariant_linear import invariant_linear
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.products.stream_k_plan import plan_stream_k
from pagedchat.ops.products.warpgroup_linear import warpgroup_linear
from tests.ops.products.few_bits_case import in_form
from tests.ops.products.small_batch_case import make_norm, normal
from tests.ops.sampling.decode_state_case import make_state
from tests.tools.emulated_ops.op_case import (
    BFLOAT,
    DTYPES,
    HALF,
    NOTHING,
    SINGLE,
    OpCase,
    Results,
    in_types,
    numbers,
    rotations,
)

HEAD_SIZE, BLOCK_SIZE, NUM_HEADS, KV_HEADS = 64, 16, 2, 1
STREAMED_WIDTH = 1024
MINIMUMS = "int4, 128, minimums"


@contextmanager
def small_weights_stream() -> Iterator[None]:
    """Through rings of three or four stages, in units that thread blocks take in turns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_rows_plan, "LEAST_SIDE", 16)
        patch.setattr(streamed_plan, "RING_BYTES", 50 << 10)
        patch.setattr(streamed_plan, "FEW_BITS_RING_BYTES", 26 << 10)
        patch.setattr(streamed_plan, "PAIRS_RING_BYTES", 34 << 10)
        streamed_plan.plan_stream.cache_clear()
        yield
    streamed_plan.plan_stream.cache_clear()


def rows_of(num_tokens: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    return normal(num_tokens, width, device="cpu", dtype=dtype)


def weight_of(num_rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """So that products are around one."""
    return normal(num_rows, width, device="cpu", dtype=dtype, scale=width**-0.5)


def embed(dtype: torch.dtype, *, with_positions: bool) -> Results:
    """First and last rows of both tables, a position that is padding."""
    positions = rows_of(7, 136, dtype) if with_positions else None
    rows = embed_tokens(
        rows_of(11, 136, dtype),
        numbers(0, 10, 3),
        numbers(4, 0, -1),
        position_vectors=positions,
        position_offset=2,
    )
    return {"rows": rows}


def norm_of_sum(dtype: torch.dtype, *, kind: str) -> Results:
    hidden, update = rows_of(3, 136, dtype), rows_of(3, 136, dtype) / 2
    norm = make_norm(kind, 136, "cpu", dtype)
    assert norm is not None
    return {"normed": add_norm(hidden, update, norm), "hidden": hidden}


def normed_update(dtype: torch.dtype, *, first: str, kind: str) -> Results:
    """Of two rows, scaled; then no norm behind the sum."""
    hidden, rows = rows_of(3, 136, dtype), rows_of(3, 136, dtype) / 2
    of_update, norm = (make_norm(each, 136, "cpu", dtype) for each in (first, kind))
    normed = add_norm(hidden, Update(rows, hidden.clone(), of_update, 0.5), norm)
    summed = hidden.clone()
    return {"normed": normed, "hidden": hidden, "summed": add_norm(summed, Update(rows, norm=of_update), None)}


def middle(dtype: torch.dtype, *, activation: Activation, paired: bool) -> Results:
    return {"rows": activate(rows_of(3, 2 * 136, dtype), activation, paired=paired)}


def finished(dtype: torch.dtype, *, cap: float | None) -> Results:
    """As many as are no whole pieces."""
    logits = rows_of(3, 203, dtype)
    finish_logits(logits, scale=0.5, cap=cap)
    return {"logits": logits}


def linear(dtype: torch.dtype, *, num_tokens: int, width: int, form: str | None = None) -> Results:
    """A bias and a residual, and another one with gates."""
    rows, residual = rows_of(num_tokens, width, dtype), rows_of(num_tokens, 32, dtype)
    weight, bias = in_form(weight_of(32, width, dtype), form), rows_of(1, 32, dtype)[0]
    plain = small_batch_linear(rows, weight, bias=bias, residual=residual, residual_scale=0.7, activation="relu")
    norm, others = make_norm("rms", width, "cpu", dtype), make_norm("offset rms", width, "cpu", dtype)
    gated = small_batch_linear(rows, weight, norm=norm, activation="silu", paired=True)
    wider = rows.new_full((num_tokens, 64), NOTHING)
    small_batch_linear(rows, weight, bias=bias, output=wider[:, 16:48])
    return {
        "plain": plain,
        "columns": wider,
        "gated": gated,
        "gelu": small_batch_linear(rows, weight, norm=others, activation="gelu"),
    }


def streamed_linear(
    dtype: torch.dtype, *, num_tokens: int = 3, width: int = STREAMED_WIDTH, form: str | None = None
) -> Results:
    with small_weights_stream():
        return linear(dtype, num_tokens=num_tokens, width=width, form=form)


def place_heads(
    dtype: torch.dtype,
    *,
    width: int,
    rotary: bool,
    turned: int = HEAD_SIZE,
    form: str | None = None,
    values_form: str | None = None,
) -> Results:
    """One token of each of three sequences, one of them padding, into caches that are NaN."""
    rows = rows_of(3, width, dtype)
    num_rows = (NUM_HEADS + 2 * KV_HEADS) * HEAD_SIZE
    border = num_rows if values_form is None else num_rows - KV_HEADS * HEAD_SIZE
    weight, bias = weight_of(num_rows, width, dtype), None if rotary else rows_of(1, num_rows, dtype)[0]
    query = torch.empty(3, NUM_HEADS, HEAD_SIZE, dtype=dtype)
    key_cache = torch.full(key_cache_shape(5, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, dtype), NOTHING, dtype=dtype)
    value_cache = torch.full(value_cache_shape(5, KV_HEADS, HEAD_SIZE, BLOCK_SIZE), NOTHING, dtype=dtype)
    qkv_to_cache(
        query,
        key_cache,
        value_cache,
        rows,
        in_form(weight[:border], form),
        torch.tensor([[4, 2], [1 << 30, 1 << 30], [0, 3]], dtype=torch.int32),
        numbers(15, -1, 16),
        bias=None if bias is None else bias[:border],
        values=None if values_form is None else in_form(weight[border:], values_form),
        values_bias=None if bias is None or values_form is None else bias[border:],
        norm=make_norm("rms" if rotary else "layer", width, "cpu", dtype),
        rotations=rotations(2 * BLOCK_SIZE, turned) if rotary else None,
    )
    return {"query": query, "keys": key_cache, "values": value_cache}


def streamed_heads(
    dtype: torch.dtype,
    *,
    rotary: bool,
    turned: int = HEAD_SIZE,
    form: str | None = None,
    values_form: str | None = None,
) -> Results:
    with small_weights_stream():
        return place_heads(
            dtype, width=STREAMED_WIDTH, rotary=rotary, turned=turned, form=form, values_form=values_form
        )


def next_token(dtype: torch.dtype, *, width: int, form: str | None = None) -> Results:
    """Of sequences one of which is padding; the most likely token is the first of two that are equal."""
    state, rows, weight = make_state([3, -1, 15], "cpu"), rows_of(3, width, dtype), weight_of(203, width, dtype)
    weight[[7, 202]] = 3 * rows[0].sign() * width**-0.5
    logits, best = torch.empty(3, 203, dtype=dtype), torch.zeros(3, dtype=torch.int64)
    norm = make_norm("layer", width, "cpu", dtype)
    logits_argmax(state, logits, rows, in_form(weight, form), norm=norm, best=best)
    assert not bool(best.any())
    assert int(state.token_ids[0]) == 7
    assert state.arrivals.tolist() == [0]
    return {
        "logits": logits,
        "positions": state.positions,
        "seq_lens": state.seq_lens,
        "step": state.step,
        "history": state.history,
    }


def streamed_next_token(dtype: torch.dtype, *, form: str | None = None) -> Results:
    with small_weights_stream():
        return next_token(dtype, width=STREAMED_WIDTH, form=form)


def by_warpgroups(dtype: torch.dtype, *, num_tokens: int) -> Results:
    """Tokens that do not fill the last tile."""
    rows, residual = rows_of(num_tokens, 256, dtype), rows_of(num_tokens, 64, dtype)
    weight, bias = weight_of(64, 256, dtype), rows_of(1, 64, dtype)[0]
    return {"rows": warpgroup_linear(rows, weight, bias=bias, residual=residual, activation="relu")}


def invariant(dtype: torch.dtype, *, num_rows: int) -> Results:
    """Widths that fill neither the last chunk nor the last tile; two parts."""
    rows, weight, bias = rows_of(num_rows, 264, dtype), weight_of(40, 264, dtype), rows_of(1, 40, dtype)[0]
    return {"rows": invariant_linear(rows, weight, bias)}


def by_stream_k(dtype: torch.dtype, *, paired: bool) -> Results:
    """Columns that are no whole tiles, a tile that thread blocks share: a vocabulary, but for its size."""
    rows, weight = rows_of(21, 256, dtype), weight_of(144, 256, dtype)
    bias, residual = rows_of(1, 144, dtype)[0], rows_of(21, 144, dtype)
    with pytest.MonkeyPatch.context() as patch:
        plan = plan_stream_k(256, 72 if paired else 136, 21, paired, 132, 227 << 10)
        patch.setattr("pagedchat.ops.products.warpgroup_linear.plan_many_rows", lambda *_sizes, **_: plan)
        if paired:
            return {"rows": warpgroup_linear(rows, weight, activation="silu", paired=True)}
        others = residual[:, :136].contiguous()
        return {"rows": warpgroup_linear(rows, weight[:136], bias=bias[:136], residual=others)}


def wide_gates(dtype: torch.dtype, *, num_tokens: int) -> Results:
    """Rows, columns and an inner dimension that fill neither tile nor chunk."""
    rows, weight = rows_of(num_tokens, 136, dtype), weight_of(2 * 200, 136, dtype)
    return {"rows": warpgroup_linear(rows, weight, activation="silu", paired=True)}


CASES: list[OpCase] = [
    *in_types("embed_tokens", partial(embed, with_positions=True), *DTYPES),
    *in_types("embed_tokens", partial(embed, with_positions=False), HALF, exact=True, about="tokens alone"),
    *in_types("add_norm", partial(norm_of_sum, kind="layer"), HALF, SINGLE),
    *in_types("add_norm", partial(norm_of_sum, kind="rms"), BFLOAT),
    *in_types("add_norm", partial(norm_of_sum, kind="exact rms"), HALF, about="exact"),
    *in_types("add_norm", partial(normed_update, first="rms", kind="rms"), HALF, about="two norms of a kind"),
    *in_types("add_norm", partial(normed_update, first="offset rms", kind="layer"), BFLOAT, about="two norms"),
    *in_types("activate_rows", partial(middle, activation="silu", paired=True), *DTYPES),
    *in_types("activate_rows", partial(middle, activation="gelu", paired=False), HALF, about="GELU"),
    *in_types("activate_rows", partial(middle, activation="gelu_tanh", paired=True), BFLOAT, about="GELU by tanh"),
    *in_types("activate_rows", partial(middle, activation="relu2", paired=False), SINGLE, about="squared ReLU"),
    *in_types("finish_logits", partial(finished, cap=2.0), *DTYPES, about="capped"),
    *in_types("finish_logits", partial(finished, cap=None), HALF),
    *in_types("small_batch_linear", partial(linear, num_tokens=3, width=256), HALF),
    *in_types("small_batch_linear", partial(linear, num_tokens=11, width=256), BFLOAT),
    *in_types("qkv_to_cache", partial(place_heads, width=256, rotary=True), HALF, about="turned"),
    *in_types("qkv_to_cache", partial(place_heads, width=256, rotary=False), BFLOAT),
    *in_types("qkv_to_cache", partial(place_heads, width=256, rotary=True, turned=16), BFLOAT, about="in part"),
    *in_types("logits_argmax", partial(next_token, width=256), HALF, BFLOAT),
    *in_types("streamed_linear", streamed_linear, HALF),
    *in_types(
        "streamed_linear", partial(streamed_linear, num_tokens=1, width=904), BFLOAT, about="one short stage"
    ),
    *in_types("streamed_linear", partial(streamed_linear, width=1304), HALF, about="a short last stage"),
    *in_types("streamed_linear", partial(streamed_linear, width=4872), HALF, about="a long input, normed apart"),
    *in_types("streamed_qkv", partial(streamed_heads, rotary=True), HALF, about="turned"),
    *in_types("streamed_qkv", partial(streamed_heads, rotary=False), BFLOAT),
    *in_types("streamed_qkv", partial(streamed_heads, rotary=True, turned=32), BFLOAT, about="turned in part"),
    *in_types("streamed_vocabulary", streamed_next_token, HALF),
    *in_types("streamed_linear", partial(streamed_linear, form="int8"), HALF, BFLOAT, about="int8"),
    *in_types(
        "streamed_linear", partial(streamed_linear, form="int8, 64", width=896), HALF, about="int8 in groups"
    ),
    *in_types("streamed_linear", partial(streamed_linear, form="fp8"), HALF, BFLOAT, about="fp8"),
    *in_types("streamed_linear", partial(streamed_linear, form="int4, 64", width=9728), HALF, about="int4, long"),
    *in_types("streamed_linear", partial(streamed_linear, form=MINIMUMS), HALF, BFLOAT, about="int4, minimums"),
    *in_types(
        "streamed_linear",
        partial(streamed_linear, form=MINIMUMS, num_tokens=1),
        HALF,
        BFLOAT,
        about="int4, one row",
    ),
    *in_types("streamed_qkv", partial(streamed_heads, rotary=True, form=MINIMUMS), HALF, about="int4, turned"),
    *in_types("streamed_qkv", partial(streamed_heads, rotary=False, form="int8"), BFLOAT, about="int8"),
    *in_types(
        "streamed_qkv",
        partial(streamed_heads, rotary=False, form=MINIMUMS, values_form="int8"),
        HALF,
        about="int4 and int8",
    ),
    *in_types("streamed_vocabulary", partial(streamed_next_token, form="int8"), HALF, about="int8"),
    *in_types("invariant_linear", partial(invariant, num_rows=3), HALF, BFLOAT),
    *in_types("invariant_linear", partial(invariant, num_rows=70), HALF, about="large tiles"),
    *in_types("warpgroup_linear", partial(by_warpgroups, num_tokens=21), HALF),
    *in_types("stream_k_linear", partial(by_stream_k, paired=False), HALF),
    *in_types("stream_k_linear", partial(by_stream_k, paired=True), BFLOAT, about="gates"),
    *in_types("wide_gates", partial(wide_gates, num_tokens=140), HALF),
    *in_types("wide_gates", partial(wide_gates, num_tokens=700), BFLOAT, about="several tiles each"),
]
