"""One attention layer against the formula, written out head by head."""

import pytest
import torch

from pagedchat.layers.alibi import Alibi
from pagedchat.layers.attention import Attention, Heads, Scores
from pagedchat.layers.linear import Linear
from pagedchat.layers.norms import Norm, NormConfig
from pagedchat.runtime.attention.dense import DenseAttention

WIDTH, NUM_TOKENS = 20, 9
RMS = NormConfig(kind="rms", eps=1e-6)
HEADS = Heads(num_heads=6, num_kv_heads=2, head_dim=4)


def make(
    window: int | None = None,
    norms: tuple[Norm, Norm] | None = None,
    alibi: Alibi | None = None,
    sinks: bool = False,
) -> Attention:
    torch.manual_seed(1)
    qkv = Linear(WIDTH, HEADS.query_width + 2 * HEADS.kv_width, bias=True)
    out, scores = (
        Linear(HEADS.query_width, WIDTH, bias=False),
        Scores(scale=0.5, sliding_window=window, alibi=alibi, sinks=sinks),
    )
    attention = Attention(3, HEADS, qkv, out, scores, norms=norms)
    for parameter in attention.parameters():
        parameter.normal_()
    return attention


def by_hand(attention: Attention, rows: torch.Tensor, window: int) -> torch.Tensor:
    """`[num_tokens, query_width]`: what goes into the last product."""
    query, key, value = attention.qkv(rows).split([HEADS.query_width, HEADS.kv_width, HEADS.kv_width], dim=1)
    columns = []
    for head in range(HEADS.num_heads):
        kv_head = head // 3
        q, k, v = (part[:, at * 4 : at * 4 + 4] for part, at in ((query, head), (key, kv_head), (value, kv_head)))
        if attention.q_norm is not None and attention.k_norm is not None:
            q, k = attention.q_norm(q), attention.k_norm(k)
        seen = [range(max(0, i + 1 - window), i + 1) for i in range(NUM_TOKENS)]
        slope = 0.0 if attention.alibi_slopes is None else float(attention.alibi_slopes[head])
        sink = -torch.inf if attention.sinks is None else float(attention.sinks[head])
        rows_of_head = []
        for i, keys in enumerate(seen):
            scores = (k[list(keys)] @ q[i]) / 2 - slope * torch.tensor([i - key for key in keys])
            weights = torch.cat((scores, torch.tensor([sink]))).softmax(0)[:-1]
            rows_of_head.append(weights @ v[list(keys)])
        columns.append(torch.stack(rows_of_head))
    return torch.cat(columns, dim=1)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("normed", [False, True])
@torch.inference_mode()
def test_grouped_heads(normed: bool, window: int | None) -> None:
    norms = (Norm(RMS, 4), Norm(RMS, 4)) if normed else None
    attention = make(window, norms)
    rows = torch.randn(NUM_TOKENS, WIDTH)
    expected = attention.out(by_hand(attention, rows, window or NUM_TOKENS))
    torch.testing.assert_close(attention(rows, DenseAttention()), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(("alibi", "sinks"), [(Alibi(), False), (None, True), (Alibi(scale=0.5), True)])
@torch.inference_mode()
def test_slopes_and_sinks(alibi: Alibi | None, sinks: bool, window: int | None) -> None:
    attention = make(window, alibi=alibi, sinks=sinks)
    rows = torch.randn(NUM_TOKENS, WIDTH)
    expected = attention.out(by_hand(attention, rows, window or NUM_TOKENS))
    torch.testing.assert_close(attention(rows, DenseAttention()), expected, rtol=1e-4, atol=1e-4)


def test_slopes_and_sinks_are_float32_in_models_of_16_bits() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        attention = make(alibi=Alibi(), sinks=True)
    finally:
        torch.set_default_dtype(torch.float32)
    assert attention.qkv.weight.dtype == torch.bfloat16
    assert attention.sinks is not None
    assert attention.alibi_slopes is not None
    assert attention.sinks.dtype == attention.alibi_slopes.dtype == torch.float32


@torch.inference_mode()
def test_norms_as_wide_as_all_heads_are_over_all_of_them() -> None:
    norms = Norm(RMS, HEADS.query_width), Norm(RMS, HEADS.kv_width)
    attention, rows = make(norms=norms), torch.randn(NUM_TOKENS, WIDTH)
    query, key, value = attention.qkv(rows).split([HEADS.query_width, HEADS.kv_width, HEADS.kv_width], dim=1)
    expected = norms[0](query), norms[1](key), value
    for ours, whole in zip(attention._changed(attention._mixed(rows), None), expected, strict=True):
        torch.testing.assert_close(ours.flatten(1), whole)


@torch.inference_mode()
def test_queries_keys_and_values_are_clipped() -> None:
    attention, rows = make(), torch.randn(NUM_TOKENS, WIDTH)
    attention.clip = 0.5
    parts = torch.cat(attention._changed(attention._mixed(rows), None), dim=1)
    assert torch.equal(parts.flatten(1), attention.qkv(rows).clamp(-0.5, 0.5))


@torch.inference_mode()
def test_keys_and_values_are_kept_before_anyone_looks() -> None:
    calls = []

    class Recorder(DenseAttention):
        def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
            calls.append(("write", layer_idx, key.shape, value.shape))

        def attend(
            self, layer_idx: int, query: torch.Tensor, *rest: torch.Tensor, **options: object
        ) -> torch.Tensor:
            calls.append(("attend", layer_idx, query.shape, options))
            return super().attend(layer_idx, query, *rest, **options)  # type: ignore[arg-type]

    options = {"scale": 0.5, "sliding_window": None, "cap": None, "alibi_slopes": None, "sinks": None}
    make()(torch.randn(NUM_TOKENS, WIDTH), Recorder())
    assert calls == [
        ("write", 3, (NUM_TOKENS, 2, 4), (NUM_TOKENS, 2, 4)),
        ("attend", 3, (NUM_TOKENS, 6, 4), options),
    ]
