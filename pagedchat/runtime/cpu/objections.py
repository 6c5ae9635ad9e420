"""What whole steps on a CPU have against a model, by its description alone. Whatever they do not know goes through
torch, layer by layer.
"""

import torch

from pagedchat.layers.norms import NormConfig
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.ops.cpu.attention import MOST_QUERIES, WIDEST_HEAD
from pagedchat.ops.cpu.dense_elements import RUN
from pagedchat.ops.cpu.vectors import LANES, VECTOR_ACTIVATIONS

ACTIVATION_NAMES = {
    **{name: name for name in VECTOR_ACTIVATIONS},
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_new", "gelu_fast"), "gelu_tanh"),
}
"""What configs call an activation -> what the kernels call it."""


def objection_to(config: DecoderConfig, cache: torch.dtype) -> str:
    """What no step does of a model, in words that go after "since"; empty if nothing.

    Args:
        config: of the model.
        cache: type of its cache.
    """
    parts = (_against_layers, _against_attention, _against_heads, _against_feed_forward)
    found = next((words for part in parts if (words := part(config))), "")
    if not found and cache not in (torch.float32, torch.bfloat16):
        return f"its cache is {cache}"
    return found


def _against_layers(config: DecoderConfig) -> str:
    if config.norm_places != "before":
        return "its norms do not come before each half of a layer"
    if config.parallel:
        return "both halves of a layer start from the same rows"
    if config.residual_scale != 1:
        return "what is added to its residual stream is scaled"
    if config.embedding_width != config.hidden_size:
        return f"its tokens' vectors are {config.embedding_width} wide and its layers {config.hidden_size}"
    return ""


def _against_attention(config: DecoderConfig) -> str:
    if config.score_cap is not None:
        return "its scores have a soft cap"
    if config.alibi is not None:
        return "its scores fall with the distance of a key"
    return "its queries, keys and values have a bound" if config.qkv_clip is not None else ""


def _against_heads(config: DecoderConfig) -> str:
    heads = config.heads
    if heads.head_dim % LANES:
        return f"its heads are {heads.head_dim} wide, no multiple of {LANES}"
    if heads.head_dim > WIDEST_HEAD:
        return f"its heads are {heads.head_dim} wide, more than {WIDEST_HEAD}"
    if heads.num_heads > MOST_QUERIES * heads.num_kv_heads:
        return f"more than {MOST_QUERIES} of its query heads share a KV head"
    if config.qk_norm is not None and (config.qk_norm.over == "each head" or not _is_plain(config.qk_norm.norm)):
        return "its queries and keys are normed, and not as Qwen3's or OLMoE's"
    if config.qk_norm is not None and config.qk_norm.over == "width" and heads.kv_width % RUN:
        return f"its keys are normed together and {heads.kv_width} wide, no multiple of {RUN}"
    return ""


def _is_plain(norm: NormConfig) -> bool:
    return norm.kind == "rms" and not norm.bias


def _against_feed_forward(config: DecoderConfig) -> str:
    if config.activation not in ACTIVATION_NAMES:
        return f"its feed-forward goes through {config.activation}"
    return ""
