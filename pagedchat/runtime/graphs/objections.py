"""What fast steps have against a model: chains of launches next to nothing, while one launch that is a whole step
does two kinds of decoder: with layer norms, learned positions and a plain feed-forward, as OPT; and with RMS norms,
angles and a gated one, as Llama.

Goes by the description alone; knows no tensor.
"""

from pagedchat.layers.norms import NormConfig
from pagedchat.models.decoder_config import QkNorm
from pagedchat.models.native import NativeConfig


def objection_to(config: NativeConfig) -> str:
    """What no chain of launches does of a model, in words that go after "since"; empty if nothing."""
    norms = [config.norm] if config.qk_norm is None else [config.norm, config.qk_norm.norm]
    others = (
        _against_mixture_beside,
        _against_bound_of_norms,
        _against_norms_over_ranks,
    )
    return next(filter(None, [*map(_against_offset, norms), *(against(config) for against in others)]), "")


def _against_offset(norm: NormConfig) -> str:
    """Of RMS norms: of layer norms it is in the weights, once they are there."""
    if norm.kind == "layer" or norm.offset in (0.0, 1.0):
        return ""
    return f"its norms multiply by {norm.offset:g} more than their weights"


def _against_mixture_beside(config: NativeConfig) -> str:
    return "a mixture of experts stands beside its attention" if config.mixture and config.parallel else ""


def _against_bound_of_norms(config: NativeConfig) -> str:
    """Heads are normed and turned in one launch, and the bound would be between the two."""
    if config.qk_norm is None or config.qkv_clip is None:
        return ""
    return "its queries and keys are normed and then have a bound"


def _against_norms_over_ranks(config: NativeConfig) -> str:
    """They wait for others in the middle of what is one launch."""
    if config.part is None or config.qk_norm is None or config.qk_norm.over != "width":
        return ""
    return "its queries and keys are normed together with those that other ranks have"


def objection_to_cache(kind: str) -> str:
    """What whole steps have against a cache of one byte an element; empty where it is none."""
    return f"its cache is {kind} and one launch reads 16 bits" if kind else ""


def objection_to_whole_steps(config: NativeConfig) -> str:
    """What launches that are whole steps do not do of a model; likewise."""
    parts = (
        _against_part,
        _against_norms,
        _against_stream,
        _against_attention,
        _against_positions,
        _against_feed_forward,
        _against_head,
    )
    return next((words for part in parts if (words := part(config))), "")


def _against_part(config: NativeConfig) -> str:
    return "" if config.part is None else "other ranks have other parts of its layers"


_OVER = {"each head": "each head by weights of its own", "width": "over their whole width"}
_ELSEWHERE = {
    "behind": "its norms come behind each half of a layer",
    "after sum": "its norms come behind each half of a layer",
    "around": "its norms come before and behind each half of a layer",
}


def _against_norms(config: NativeConfig) -> str:
    norm = config.norm
    if config.norm_places != "before":
        return _ELSEWHERE[config.norm_places]
    if not config.final_norm:
        return "it has no norm behind its last layer"
    if not norm.weight:
        return "its norms have no weights"
    return "its norms multiply by one more than their weights" if norm.offset else ""


def _against_stream(config: NativeConfig) -> str:
    if config.parallel:
        return "both halves of a layer start from the same rows"
    if config.embedding_width != config.hidden_size:
        return f"its tokens' vectors are {config.embedding_width} wide and its layers {config.hidden_size}"
    if config.embedding_norm:
        return "its tokens' vectors are normed"
    if config.embedding_scale != 1 or config.residual_scale != 1:
        return "what is added to its residual stream is scaled"
    return ""


def _against_attention(config: NativeConfig) -> str:
    if config.qk_norm is not None and (words := _against_head_norms(config.qk_norm)):
        return words
    if config.scale != config.heads.head_dim**-0.5:
        return f"its scores are scaled by {config.scale:.4g}"
    if config.score_cap is not None:
        return "its scores have a soft cap"
    if config.alibi is not None:
        return "its scores fall with the distance of a key"
    if config.sinks:
        return "its heads have sinks"
    return "its queries, keys and values have a bound" if config.qkv_clip is not None else ""


def _against_head_norms(normed: QkNorm) -> str:
    """Head by head with one weight, rounded where Llama's norms are: that is done on the way to the cache."""
    if normed.over != "head":
        return f"its queries and keys are normed {_OVER[normed.over]}"
    norm = normed.norm
    if norm.kind != "rms" or norm.offset or norm.exact or not norm.weight:
        return "its queries and keys are normed, and not as Qwen3's"
    return ""


def _against_positions(config: NativeConfig) -> str:
    rotary, head_dim = config.rotary, config.heads.head_dim
    if rotary is not None and rotary.turned(head_dim) != head_dim:
        return f"{rotary.turned(head_dim)} of {head_dim} elements of its heads are turned"
    if len(set(config.rotaries)) > 1:
        return "not all of its layers turn queries and keys alike"
    if (rotary is None) == (config.position_offset is None):
        return "its positions are both learned and angles, or neither"
    return ""


def _against_feed_forward(config: NativeConfig) -> str:
    if config.mixture is not None:
        return "its feed-forward is a mixture of experts"
    known = "silu" if config.gated else "relu"
    if config.activation != known:
        return f"its feed-forward goes through {config.activation} instead of {known}"
    if config.gated != (config.norm.kind == "rms") or config.gated != (config.rotary is not None):
        return "no family with such norms has such a feed-forward"
    return ""


def _against_head(config: NativeConfig) -> str:
    if config.head_bias:
        return "its head has a bias"
    if config.logits_scale != 1 or config.logits_cap is not None:
        return "its logits are scaled or capped"
    return ""
