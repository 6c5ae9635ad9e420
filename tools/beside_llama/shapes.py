"""The models that both sides run: shapes that people run on laptops, with random weights. Knows no engine."""

from typing import Any

from pagedchat.bench.engine import shapes

_FOR_TRANSFORMERS = {"hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": shapes.SHAPES["qwen2.5-0.5b"] | _FOR_TRANSFORMERS | {
        "bos_token_id": 151643, "eos_token_id": 151645,
    },
    "SmolLM2-135M": _FOR_TRANSFORMERS | {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 49152, "hidden_size": 576,
        "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "bos_token_id": 1,
        "eos_token_id": 2,
    },
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "Qwen3-30B-A3B-4-layers": {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936,
        "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "norm_topk_prob": True, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 151643, "eos_token_id": 151645,
    },
}  # fmt: skip
"""Measured where they are asked for: of a mixture of experts as many layers as memory is for."""
STD = 0.05
"""Of the weights: replies that do not repeat one token."""
