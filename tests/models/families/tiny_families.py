"""Tiny random checkpoints of every family that our own decoder runs, in all kinds, as transformers saves them; and
the same kinds eight times as wide, with heads of a size that the CUDA kernels have."""

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Cohere2Config,
    CohereConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GPTJConfig,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    LlamaConfig,
    MinistralConfig,
    MistralConfig,
    MixtralConfig,
    MptConfig,
    NemotronConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoConfig,
    OlmoeConfig,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
    StableLmConfig,
    Starcoder2Config,
)  # fmt: skip

from tests.gpt_oss_bounds import bounds

VOCAB_SIZE = 96
_TOKENS: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_SHAPE = {
    **_TOKENS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128,
}  # fmt: skip
_GROUPED = {**_SHAPE, "num_key_value_heads": 2}
_DEEP = {**_GROUPED, "num_hidden_layers": 3}
_MIXTURE = {**_DEEP, "num_experts": 7, "moe_intermediate_size": 24, "num_experts_per_tok": 3}
_OPT = {
    **_TOKENS, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128,
}  # fmt: skip
_GPT = {**_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
_FALCON = {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_BLOOM = {**_TOKENS, "hidden_size": 32, "n_layer": 2}
_MPT = {**_TOKENS, "d_model": 32, "n_layers": 2, "max_seq_len": 128}
_THETA = {"rope_theta": 1e4}
_YARN = {**_THETA, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
_LONGROPE = {**_THETA, "rope_type": "longrope", "short_factor": [1.0, 1.3, 2.0], "long_factor": [2.0, 3.0, 9.0]}

CONFIGS: dict[str, Any] = {
    "opt": OPTConfig(**_OPT, word_embed_proj_dim=32),
    "opt_after": OPTConfig(**_OPT, word_embed_proj_dim=16, do_layer_norm_before=False),
    "opt_untied": OPTConfig(**_OPT, word_embed_proj_dim=32, tie_word_embeddings=False),
    "opt_gelu": OPTConfig(**_OPT, word_embed_proj_dim=32, activation_function="gelu", enable_bias=False),
    "opt_no_last_norm": OPTConfig(
        **_OPT, word_embed_proj_dim=32, layer_norm_elementwise_affine=False, _remove_final_layer_norm=True
    ),
    "llama": LlamaConfig(**_GROUPED),
    "llama_biases": LlamaConfig(**_GROUPED, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama_linear": LlamaConfig(**_GROUPED, rope_parameters=_THETA | {"rope_type": "linear", "factor": 2.0}),
    "llama3": LlamaConfig(**_GROUPED, rope_parameters=_LLAMA3),
    "llama_yarn": LlamaConfig(**_GROUPED, head_dim=20, rope_parameters=_YARN, tie_word_embeddings=True),
    "mistral": MistralConfig(**_GROUPED, sliding_window=6),
    "ministral": MinistralConfig(
        **_GROUPED, head_dim=8, sliding_window=6, layer_types=["sliding_attention", "full_attention"]
    ),
    "qwen2": Qwen2Config(**_GROUPED),
    "qwen2_some_windows": Qwen2Config(
        **_GROUPED, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "qwen3": Qwen3Config(**_GROUPED, head_dim=8),
    "smollm3": SmolLM3Config(**_DEEP, no_rope_layer_interval=2),
    "smollm3_windows": SmolLM3Config(**_DEEP, no_rope_layers=[1, 1, 0], use_sliding_window=True, sliding_window=5),
    "granite": GraniteConfig(
        **_GROUPED, embedding_multiplier=1.7, logits_scaling=3.0, residual_multiplier=0.6, attention_multiplier=0.3
    ),
    "gemma": GemmaConfig(**_GROUPED, head_dim=16),
    "gemma2": Gemma2Config(
        **_GROUPED, head_dim=8, sliding_window=7, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
        query_pre_attn_scalar=12,
    ),
    "gemma3": Gemma3TextConfig(**_DEEP, head_dim=8, sliding_window=7, sliding_window_pattern=2),
    "phi": PhiConfig(**_SHAPE),
    "phi_normed": PhiConfig(**_GROUPED, qk_layernorm=True),
    "phi3": Phi3Config(**_GROUPED, sliding_window=9),
    "phi3_longrope": Phi3Config(
        **_GROUPED, partial_rotary_factor=0.75, original_max_position_embeddings=100, rope_parameters=_LONGROPE
    ),
    "gpt2": GPT2Config(**_GPT, n_inner=40),
    "gptj": GPTJConfig(**_GPT, rotary_dim=4),
    "gpt_neox": GPTNeoXConfig(**_SHAPE, hidden_act="gelu_new"),
    "gpt_neox_sequential": GPTNeoXConfig(**_SHAPE, use_parallel_residual=False, attention_bias=False),
    "olmo": OlmoConfig(**_GROUPED, clip_qkv=0.5),
    "olmo2": Olmo2Config(**_GROUPED),
    "olmo3": Olmo3Config(
        **_DEEP, sliding_window=5, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": _YARN, "sliding_attention": _THETA},
    ),
    "stablelm": StableLmConfig(**_GROUPED, use_qkv_bias=True),
    "stablelm_parallel": StableLmConfig(
        **_GROUPED, use_parallel_residual=True, qk_layernorm=True, partial_rotary_factor=0.5
    ),
    "cohere": CohereConfig(**_GROUPED),
    "cohere_normed": CohereConfig(**_GROUPED, use_qk_norm=True, attention_bias=True, tie_word_embeddings=False),
    "cohere2": Cohere2Config(**_DEEP, sliding_window=6, sliding_window_pattern=2),
    "nemotron": NemotronConfig(**_GROUPED, mlp_bias=True),
    "starcoder2": Starcoder2Config(**_GROUPED, sliding_window=6),
    "falcon": FalconConfig(**_FALCON),
    "falcon_grouped": FalconConfig(**_FALCON, new_decoder_architecture=True, num_kv_heads=2),
    "falcon_slopes": FalconConfig(
        **_FALCON, multi_query=False, parallel_attn=False, bias=True, alibi=True
    ),
    "falcon_slopes_parallel": FalconConfig(**_FALCON, alibi=True),
    "bloom": BloomConfig(**_BLOOM, n_head=4),
    "bloom_six_heads": BloomConfig(**_BLOOM | {"hidden_size": 48}, n_head=6, tie_word_embeddings=False),
    "mpt": MptConfig(**_MPT, n_heads=4),
    "mpt_three_heads": MptConfig(
        **_MPT | {"d_model": 24}, n_heads=3, attn_config={"clip_qkv": 0.7, "softmax_scale": 0.4}
    ),
    "falcon_old": FalconConfig(**_FALCON, multi_query=False, parallel_attn=False, bias=True),
    "mixtral": MixtralConfig(**_GROUPED, num_local_experts=4, sliding_window=6),
    "qwen2_moe": Qwen2MoeConfig(**_MIXTURE, shared_expert_intermediate_size=40),
    "qwen2_moe_some_sparse": Qwen2MoeConfig(
        **_MIXTURE, shared_expert_intermediate_size=40, mlp_only_layers=[1], norm_topk_prob=True, qkv_bias=False,
        use_sliding_window=True, sliding_window=5, max_window_layers=1,
    ),
    "qwen3_moe": Qwen3MoeConfig(**_MIXTURE, head_dim=8, norm_topk_prob=True),
    "qwen3_moe_some_sparse": Qwen3MoeConfig(
        **_MIXTURE, decoder_sparse_step=2, attention_bias=True, use_sliding_window=True, sliding_window=5
    ),
    "olmoe": OlmoeConfig(**_GROUPED, num_experts=6, num_experts_per_tok=2, clip_qkv=1.5),
    "gpt_oss": GptOssConfig(
        **_DEEP, head_dim=8, num_local_experts=6, num_experts_per_tok=3, sliding_window=6,
        rope_parameters=_YARN | {"truncate": False}, **bounds(swiglu_limit=1.5),
    ),
    "gpt_oss_no_biases": GptOssConfig(
        **_GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2, attention_bias=False,
        layer_types=["full_attention", "sliding_attention"], sliding_window=5, **bounds(swiglu_alpha=1.2),
    ),
    "olmoe_no_bounds": OlmoeConfig(**_GROUPED, num_experts=6, num_experts_per_tok=2),
}  # fmt: skip
SLOPES_TWICE = ("falcon_slopes", "falcon_slopes_parallel")
"""Of these the eager attention of transformers adds the slopes in its mask and once more."""
ONLY_OURS = ("bloom", "falcon", "gptj", "mpt", "stablelm")
"""Of these transformers has modules that do not go through its attention interface."""


_TIMES = 8
WIDE_VOCAB_SIZE = 304
_WIDTHS = ("hidden_size", "n_embd", "word_embed_proj_dim", "rotary_dim", "query_pre_attn_scalar")
_MIDDLES = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")


def save_tiny(folder: Path, name: str) -> Path:
    """Save a random model of a kind in `CONFIGS`; returns the folder.

    Its weights are large enough that replies differ with the prompt, and no two tensors are alike.
    """
    return save(folder, random_model(name, copy.deepcopy(CONFIGS[name]), 0.3))


def wide_model(name: str) -> Any:
    """The same kind in float32, 256 wide, with heads of 64 and 1,536 between the products of its feed-forward:
    enough for every kind of captured step."""
    return random_model(name, wide_config(name), 0.3 * _TIMES**-0.5)


def wide_config(name: str) -> Any:
    """What `wide_model` is made from."""
    config = copy.deepcopy(CONFIGS[name])
    config.vocab_size = WIDE_VOCAB_SIZE
    for field in {config.attribute_map.get(name, name) for name in _WIDTHS}:  # some have two names
        if getattr(config, field, None) is not None:
            setattr(config, field, _TIMES * getattr(config, field))
    for field in {config.attribute_map.get(name, name) for name in _MIDDLES}:
        if hasattr(config, field):
            setattr(config, field, 1536)
    for field in ("moe_intermediate_size", "shared_expert_intermediate_size"):
        if hasattr(config, field):
            setattr(config, field, 96)
    if "head_dim" in vars(config):
        config.head_dim = 64
    if config.model_type == "granite":
        config.attention_multiplier *= _TIMES**-0.5
    for factors in ("short_factor", "long_factor"):  # one for every angle
        if factors in (getattr(config, "rope_parameters", None) or {}):
            config.rope_parameters[factors] *= _TIMES
    return config


def random_model(name: str, config: Any, std: float) -> Any:
    """Of transformers, in float32, whose weights vary by `std`."""
    torch.manual_seed(list(CONFIGS).index(name))
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=std)
        else:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def save(folder: Path, model: Any) -> Path:
    """As transformers saves it; returns the folder."""
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder
