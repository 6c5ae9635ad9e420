from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from pagedchat.layers.rotary import RotaryEmbedding
from pagedchat.layers.rotary_frequencies import Llama3Scaling, PairScaling, RotaryConfig, YarnScaling

HEAD_DIM, THETA = 64, 50000.0
POSITIONS = torch.tensor([0, 1, 5, 300, 4095, 100_000])
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"factor": 4.0, "original_max_position_embeddings": 512}
PAIRS = tuple(1 + pair / 8 for pair in range(HEAD_DIM // 2))
LONGROPE = {"short_factor": list(PAIRS), "long_factor": [9.0] * 32, "original_max_position_embeddings": 512}
KINDS: dict[str, tuple[RotaryConfig, dict[str, Any]]] = {
    "default": (RotaryConfig(THETA), {"rope_type": "default"}),
    "linear": (RotaryConfig(THETA, factor=4.0), {"rope_type": "linear", "factor": 4.0}),
    "llama3": (
        RotaryConfig(THETA, scaling=Llama3Scaling(**LLAMA3, original_len=512)),
        {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 512},
    ),
    "yarn": (RotaryConfig(THETA, scaling=YarnScaling(4.0, 32, 1, 512)), {"rope_type": "yarn", **YARN}),
    "yarn, any pair": (
        RotaryConfig(THETA, scaling=YarnScaling(4.0, 20, 2, 512, whole=False)),
        {"rope_type": "yarn", **YARN, "beta_fast": 20, "beta_slow": 2, "truncate": False},
    ),
    "longrope": (RotaryConfig(THETA, scaling=PairScaling(PAIRS, 512)), {"rope_type": "longrope", **LONGROPE}),
}


def theirs(kind: str) -> LlamaRotaryEmbedding:
    rope = {"rope_theta": THETA, **KINDS[kind][1]}
    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM, num_attention_heads=4, max_position_embeddings=200_000, rope_parameters=rope
    )
    return LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_are_those_of_transformers(kind: str) -> None:
    frequencies = KINDS[kind][0].frequencies(HEAD_DIM)
    torch.testing.assert_close(frequencies, theirs(kind).inv_freq, rtol=1e-6, atol=0)


def test_the_kinds_differ() -> None:
    of_kinds = [config.frequencies(HEAD_DIM) for config, _ in KINDS.values()]
    default, linear, llama3 = of_kinds[:3]
    assert torch.equal(linear, default / 4)
    assert torch.equal(llama3[:4], default[:4])
    torch.testing.assert_close(llama3[-4:], default[-4:] / 8)
    assert len({tuple(frequencies.tolist()) for frequencies in of_kinds}) == len(KINDS)


@torch.inference_mode()
def test_a_part_of_each_head_is_turned_and_scaled_and_the_rest_left_alone() -> None:
    torch.manual_seed(0)
    heads = torch.randn(len(POSITIONS), 3, HEAD_DIM)
    part = RotaryEmbedding(RotaryConfig(THETA, share=0.25, scale=1.5), HEAD_DIM)(POSITIONS, heads.dtype).apply(
        heads
    )
    whole = RotaryEmbedding(RotaryConfig(THETA), 16)(POSITIONS, heads.dtype).apply(heads[..., :16])
    torch.testing.assert_close(part[..., :16], 1.5 * whole)
    assert torch.equal(part[..., 16:], heads[..., 16:])


@torch.inference_mode()
def test_exact_turns_are_rounded_once() -> None:
    torch.manual_seed(0)
    heads = torch.randn(len(POSITIONS), 3, HEAD_DIM).bfloat16()
    exact, rounded = (RotaryEmbedding(RotaryConfig(THETA, exact=flag), HEAD_DIM) for flag in (True, False))
    expected = exact(POSITIONS, torch.float32).apply(heads.float()).bfloat16()
    assert torch.equal(exact(POSITIONS, heads.dtype).apply(heads), expected)
    assert not torch.equal(rounded(POSITIONS, heads.dtype).apply(heads), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_queries_turn_as_with_transformers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    heads = torch.randn(len(POSITIONS), 3, HEAD_DIM, dtype=dtype)
    rotary = RotaryEmbedding(KINDS["default"][0], HEAD_DIM)
    batched = heads.transpose(0, 1)[None]
    expected, _ = apply_rotary_pos_emb(batched, batched, *theirs("default")(batched, POSITIONS[None]))
    assert torch.equal(rotary(POSITIONS, dtype).apply(heads), expected[0].transpose(0, 1))
