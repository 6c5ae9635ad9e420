"""Tiny random checkpoints of many families, made on the spot, and transformers' own greedy replies for them."""

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    Gemma2Config,
    Gemma3TextConfig,
    GenerationConfig,
    GlmConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    OlmoeConfig,
    OPTConfig,
    PhiConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)  # fmt: skip

from tests.gpt_oss_bounds import bounds

VOCAB_SIZE, POSITIONS = 96, 128
_SHAPE = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": POSITIONS,
}  # fmt: skip
_GROUPED = {**_SHAPE, "num_key_value_heads": 2}
_OPT = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS, "word_embed_proj_dim": 32,
}  # fmt: skip

_CONFIGS: dict[str, Any] = {
    "opt": OPTConfig(**_OPT),
    "opt_350m": OPTConfig(**{**_OPT, "word_embed_proj_dim": 16}, do_layer_norm_before=False),
    "opt_untied": OPTConfig(**_OPT, tie_word_embeddings=False),
    "gpt2": GPT2Config(vocab_size=VOCAB_SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=POSITIONS),
    "llama": LlamaConfig(**_GROUPED),
    "llama_tied": LlamaConfig(**_GROUPED, tie_word_embeddings=True),
    "llama_wide_heads": LlamaConfig(**_GROUPED, head_dim=20),
    "qwen2": Qwen2Config(**_GROUPED),
    "qwen3": Qwen3Config(**_GROUPED, head_dim=8),
    "mistral": MistralConfig(**_GROUPED, sliding_window=6),
    "gpt_neox": GPTNeoXConfig(**_SHAPE),
    "phi": PhiConfig(**_SHAPE),
    "gemma2": Gemma2Config(**_GROUPED, head_dim=8, sliding_window=7, attn_logit_softcapping=2.0),
}
FAMILIES = list(_CONFIGS)

_WIDE = {**_SHAPE, "hidden_size": 64, "head_dim": 64}
_WIDE_GROUPED = {**_WIDE, "num_key_value_heads": 2}
_OWN_HEADS = {**_SHAPE, "hidden_size": 128, "num_attention_heads": 2}
_EXPERTS = {"num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
_KERNEL_CONFIGS: dict[str, Any] = {
    "opt_64": OPTConfig(**{**_OPT, "hidden_size": 128, "word_embed_proj_dim": 128, "num_attention_heads": 2}),
    "llama_64": LlamaConfig(**_WIDE_GROUPED),
    "llama_128_one_kv_head": LlamaConfig(**{**_WIDE, "head_dim": 128, "num_key_value_heads": 1}),
    "qwen3_80": Qwen3Config(**{**_WIDE_GROUPED, "head_dim": 80}),
    "mistral_64": MistralConfig(**_WIDE_GROUPED, sliding_window=6),
    "gemma2_256": Gemma2Config(**{**_WIDE_GROUPED, "head_dim": 256}, sliding_window=7, attn_logit_softcapping=2.0),
    "gemma3_256": Gemma3TextConfig(
        **{**_WIDE_GROUPED, "head_dim": 256}, sliding_window=7, sliding_window_pattern=2
    ),
    "gpt2_64": GPT2Config(vocab_size=VOCAB_SIZE, n_embd=128, n_layer=2, n_head=2, n_positions=POSITIONS),
    "gpt_neox_64": GPTNeoXConfig(**_OWN_HEADS),
    "phi_64": PhiConfig(**_OWN_HEADS),
    "olmo2_64": Olmo2Config(**_OWN_HEADS),
    "cohere2_64": Cohere2Config(**_OWN_HEADS, sliding_window=7, sliding_window_pattern=2),
    "mixtral_64": MixtralConfig(**_WIDE_GROUPED, num_local_experts=4),
    "qwen2_moe_64": Qwen2MoeConfig(
        **_OWN_HEADS, **_EXPERTS, num_key_value_heads=1, shared_expert_intermediate_size=40
    ),
    "qwen3_moe_128": Qwen3MoeConfig(**{**_WIDE_GROUPED, "head_dim": 128}, **_EXPERTS, norm_topk_prob=True),
    "olmoe_64": OlmoeConfig(**_OWN_HEADS, num_experts=6, num_experts_per_tok=2),
    "gpt_oss_64": GptOssConfig(
        **_WIDE_GROUPED, num_local_experts=6, num_experts_per_tok=2, sliding_window=7, **bounds(swiglu_limit=3.0)
    ),
    "glm_64": GlmConfig(**_WIDE_GROUPED),
}
KERNEL_FAMILIES = list(_KERNEL_CONFIGS)
"""With head sizes that the CUDA kernels have; all but the last run on our own decoder."""
KERNEL_MIXTURES = ("mixtral_64", "qwen2_moe_64", "qwen3_moe_128", "olmoe_64", "gpt_oss_64")
"""Those of them that are mixtures of experts."""


def make_checkpoint(path: Path, family: str = "opt", vocab_size: int = VOCAB_SIZE, **save_options: Any) -> Path:
    """Save a random model of `family` under `path`; returns the folder.

    Its weights are large enough that replies differ with the prompt.
    """
    config = copy.deepcopy({**_CONFIGS, **_KERNEL_CONFIGS}[family])
    config.vocab_size = vocab_size
    config.bos_token_id, config.eos_token_id, config.pad_token_id = 1, 2, 0
    torch.manual_seed([*FAMILIES, *KERNEL_FAMILIES].index(family))
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(path, **save_options)
    (path / "generation_config.json").unlink(missing_ok=True)
    return path


def reference_replies(path: Path, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
    """Greedy replies of transformers' own `generate`, one prompt at a time, in float32."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    settings = GenerationConfig(max_new_tokens=num_tokens, do_sample=False, eos_token_id=None, pad_token_id=0)
    replies = []
    for prompt in prompts:
        input_ids = torch.tensor([prompt])
        output = model.generate(input_ids, attention_mask=torch.ones_like(input_ids), generation_config=settings)
        replies.append(output[0, len(prompt) :].tolist())
    return replies


OF_8_BITS = 0.15
"""What kernels for weights of few bits, which round the inputs of products to 8 bits, may move logits of tiny
models by, as a part of the largest one."""


@torch.inference_mode()
def check_greedy(path: Path, prompts: list[list[int]], replies: list[list[int]], room: float = 1e-4) -> None:
    """Every token of the replies is the most likely one by transformers in float32, on the same text.

    Of two that are alike to a part in ten thousand either is right: which of them is ahead depends on the order in
    which a processor adds. `room` is another part. So do the experts of a token from which on two were as likely.
    """
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    num_decided = 0
    for prompt, reply in zip(prompts, replies, strict=True):
        logits, decided = _judged(model, prompt, reply)
        short_of_best = logits.max(dim=1).values - logits.gather(1, torch.tensor(reply)[:, None])[:, 0]
        assert (short_of_best[:decided] <= room * logits.abs().max()).all(), (prompt, reply)
        num_decided += decided
    assert num_decided > sum(map(len, replies)) / 2


_ROUNDING = 1e-5
"""What the order of additions in float32 may move a number by, as a part of the largest one beside it."""


@torch.inference_mode()
def check_same_draws(
    path: Path, top_k: int, prompts: list[list[int]], replies: list[list[int]], others: list[list[int]]
) -> None:
    """Replies drawn with the same seeds are the same, up to where rounding decides.

    That is where an expert, or the last of the `top_k` tokens that may be drawn, is as likely as the next one.
    """
    model = None
    for prompt, reply, other in zip(prompts, replies, others, strict=True):
        if reply == other:
            continue
        same = next(i for i, (one, another) in enumerate(zip(reply, other, strict=True)) if one != another)
        model = model or AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        logits, decided = _judged(model, prompt, reply[: same + 1])
        best = logits.topk(top_k + 1).values
        tied = best[:, -2] - best[:, -1] <= _ROUNDING * logits.abs().max()
        assert decided <= same or tied.any(), (prompt, reply, other)


def _judged(model: PreTrainedModel, prompt: list[int], reply: list[int]) -> tuple[torch.Tensor, int]:
    """What each token of a reply is drawn from, and how many of them come before a tie between two experts."""
    experts = getattr(model.config, "num_experts_per_tok", None)
    routed = {} if experts is None else {"output_router_logits": True}
    output = model(torch.tensor([prompt + reply]), use_cache=False, **routed)
    logits = output.logits[0, len(prompt) - 1 : -1].float()
    if experts is None:
        return logits, len(reply)
    ties = torch.zeros(len(prompt) + len(reply), dtype=torch.bool)
    for scores in output.router_logits:
        best = scores.float().topk(experts + 1).values
        ties |= best[:, -2] - best[:, -1] <= _ROUNDING * scores.abs().max()
    tied = ties.nonzero()[:, 0].tolist()
    return logits, len(reply) if not tied else max(0, tied[0] - len(prompt) + 1)
