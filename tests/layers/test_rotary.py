from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from pagedchat.layers.rotary import RotaryEmbedding
from pagedchat.layers.rotary_frequencies import Llama3Scaling, RotaryConfig

HEAD_DIM, THETA = 64, 50000.0
POSITIONS = torch.tensor([0, 1, 5, 300, 4095, 100_000])
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
KINDS: dict[str, tuple[RotaryConfig, dict[str, Any]]] = {
    "default": (RotaryConfig(THETA), {"rope_type": "default"}),
    "linear": (RotaryConfig(THETA, factor=4.0), {"rope_type": "linear", "factor": 4.0}),
    "llama3": (
        RotaryConfig(THETA, scaling=Llama3Scaling(**LLAMA3, original_len=512)),
        {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 512},
    ),
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


def test_the_three_kinds_differ() -> None:
    default, linear, llama3 = (config.frequencies(HEAD_DIM) for config, _ in KINDS.values())
    assert torch.equal(linear, default / 4)
    assert torch.equal(llama3[:4], default[:4])
    torch.testing.assert_close(llama3[-4:], default[-4:] / 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_queries_turn_as_with_transformers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    heads = torch.randn(len(POSITIONS), 3, HEAD_DIM, dtype=dtype)
    rotary = RotaryEmbedding(KINDS["default"][0], HEAD_DIM)
    batched = heads.transpose(0, 1)[None]
    expected, _ = apply_rotary_pos_emb(batched, batched, *theirs("default")(batched, POSITIONS[None]))
    assert torch.equal(rotary(POSITIONS, dtype).apply(heads), expected[0].transpose(0, 1))
