"""The shapes of models that people run, and what each engine is asked to do with them. Measures nothing."""

import random
from dataclasses import dataclass
from typing import Any

from pagedchat.bench.engine.workloads import DecodeWork, Prompts, Tokens
from pagedchat.bench.random_checkpoint import LLAMA_1B

SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936, "hidden_size": 896,
        "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True,
    },
    "llama-3.2-1b": LLAMA_1B | {"max_position_embeddings": 32768},
    "qwen3-1.7b": {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936, "hidden_size": 2048,
        "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
    "llama-3.1-8b": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Config.json by name; weights are drawn at random."""
MIXTURE = "qwen3-30b-a3b-4-layers"
MIXTURES: dict[str, dict[str, Any]] = {
    MIXTURE: {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936,
        "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "norm_topk_prob": True, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "tie_word_embeddings": False,
    },
}  # fmt: skip
"""The same of mixtures of experts, few of whose layers say what all do: a step at a time, no crowds."""

STEPS = {
    "step_1_ms": DecodeWork(num_chats=1, prompt_tokens=32, new_tokens=256),
    **{f"step_{n}_ms": DecodeWork(num_chats=n, prompt_tokens=128, new_tokens=128) for n in (8, 64, 256)},
    "step_1_long_ms": DecodeWork(num_chats=1, prompt_tokens=8192, new_tokens=128),
}
"""By row: a decode step of so many chats."""
LONG_PROMPT = 1500
LONG_CHAT, NEXT_TURN = 8000, 30
"""Tokens that are cached, and those of the turn behind them."""
NUM_DRAWN = 64
"""Chats whose tokens are drawn, 128 after 128, at temperature 0.8 from the likeliest 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdWork:
    """Requests of many lengths at once, some of them over one system prompt; lengths are log-normal."""

    num_requests: int = 200
    system_tokens: int = 400
    share_with_system: float = 0.33
    prompt: tuple[float, float, int] = (5.0, 1.0, 1800)
    """Mean and deviation of the logarithm of a length, and the most."""
    reply: tuple[float, float, int] = (4.6, 0.8, 600)

    def draw(self, prompts: Prompts, seed: int = 5) -> tuple[Tokens, list[int]]:
        """Fresh prompts and the lengths of their replies; a seed has the same lengths every time."""
        source = random.Random(seed)  # noqa: S311 - any lengths will do
        system = prompts.one(self.system_tokens)
        asked, lengths = [], []
        for _ in range(self.num_requests):
            own = prompts.one(_length(source, self.prompt) + 8)
            lengths.append(_length(source, self.reply) + 4)
            asked.append([*system, *own] if source.random() < self.share_with_system else own)
        return asked, lengths


def _length(source: random.Random, kind: tuple[float, float, int]) -> int:
    mean, deviation, most = kind
    return int(min(most, source.lognormvariate(mean, deviation)))


def bytes_read(weight_bytes: int, shape: dict[str, Any], element_size: int) -> int:
    """Of the weights, what every token reads: of an embedding that is not the head as well it is one row.

    Args:
        weight_bytes: of all tensors, a tied head counted once.
        shape: config.json.
        element_size: bytes.
    """
    tied = shape["tie_word_embeddings"]
    return weight_bytes - (0 if tied else shape["vocab_size"] * shape["hidden_size"] * element_size)
