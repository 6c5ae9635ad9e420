"""The families that our own modules run: their configs and how they are built. Knows no files.

Everything else runs through transformers, which takes seconds to import; nothing here imports it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from pagedchat.layers.rotary_frequencies import PairScaling
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families import (
    bloom,
    cohere,
    falcon,
    gemma,
    gpt2,
    gpt_neox,
    gpt_oss,
    llama,
    mixtures,
    mpt,
    nemotron,
    olmo,
    opt,
    phi,
    stablelm,
    starcoder2,
)
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized import mxfp4
from pagedchat.models.raw_config import NotNativeError, RawConfig
from pagedchat.ops.ranks.company import ALONE, Ranks

NativeConfig = DecoderConfig

_NOT_DONE = ("is_encoder_decoder", "add_cross_attention", "kv_lora_rank", "text_config")
"""Whatever sets one of these is more than its family."""


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    """As the class names of transformers begin."""
    read: Callable[[RawConfig], NativeConfig]
    defaults: Mapping[str, Any]
    head: str = "ForCausalLM"
    """How the class name goes on with a head."""
    body: str = "Model"
    """And how that of a checkpoint saved without one."""
    quant_method: str | None = None
    """In which its weights may be stored besides floating-point numbers."""


_FAMILIES = {
    "opt": _Family("OPT", opt.read_opt, opt.DEFAULTS),
    "llama": _Family("Llama", llama.read_llama, llama.LLAMA_DEFAULTS),
    "mistral": _Family("Mistral", llama.read_mistral, llama.MISTRAL_DEFAULTS),
    "ministral": _Family("Ministral", llama.read_ministral, llama.MISTRAL_DEFAULTS),
    "qwen2": _Family("Qwen2", llama.read_qwen2, llama.QWEN2_DEFAULTS),
    "qwen3": _Family("Qwen3", llama.read_qwen3, llama.QWEN3_DEFAULTS),
    "mixtral": _Family("Mixtral", mixtures.read_mixtral, mixtures.MIXTRAL_DEFAULTS),
    "qwen2_moe": _Family("Qwen2Moe", mixtures.read_qwen2_moe, mixtures.QWEN2_MOE_DEFAULTS),
    "qwen3_moe": _Family("Qwen3Moe", mixtures.read_qwen3_moe, mixtures.QWEN3_MOE_DEFAULTS),
    "olmoe": _Family("Olmoe", mixtures.read_olmoe, mixtures.OLMOE_DEFAULTS),
    "gpt_oss": _Family("GptOss", gpt_oss.read_gpt_oss, gpt_oss.DEFAULTS, quant_method=mxfp4.QUANT_METHOD),
    "smollm3": _Family("SmolLM3", llama.read_smollm3, llama.SMOLLM3_DEFAULTS),
    "granite": _Family("Granite", llama.read_granite, llama.GRANITE_DEFAULTS),
    "gemma": _Family("Gemma", gemma.read_gemma, gemma.GEMMA_DEFAULTS),
    "gemma2": _Family("Gemma2", gemma.read_gemma2, gemma.GEMMA2_DEFAULTS),
    "gemma3_text": _Family("Gemma3", gemma.read_gemma3, gemma.GEMMA3_DEFAULTS, body="TextModel"),
    "phi": _Family("Phi", phi.read_phi, phi.PHI_DEFAULTS),
    "phi3": _Family("Phi3", phi.read_phi3, phi.PHI3_DEFAULTS),
    "gpt2": _Family("GPT2", gpt2.read_gpt2, gpt2.GPT2_DEFAULTS, head="LMHeadModel"),
    "gptj": _Family("GPTJ", gpt2.read_gptj, gpt2.GPTJ_DEFAULTS),
    "gpt_neox": _Family("GPTNeoX", gpt_neox.read_gpt_neox, gpt_neox.DEFAULTS),
    "olmo": _Family("Olmo", olmo.read_olmo, olmo.OLMO_DEFAULTS),
    "olmo2": _Family("Olmo2", olmo.read_olmo2, olmo.OLMO2_DEFAULTS),
    "olmo3": _Family("Olmo3", olmo.read_olmo3, olmo.OLMO3_DEFAULTS),
    "stablelm": _Family("StableLm", stablelm.read_stablelm, stablelm.DEFAULTS),
    "cohere": _Family("Cohere", cohere.read_cohere, cohere.COHERE_DEFAULTS),
    "cohere2": _Family("Cohere2", cohere.read_cohere2, cohere.COHERE2_DEFAULTS),
    "nemotron": _Family("Nemotron", nemotron.read_nemotron, nemotron.DEFAULTS),
    "starcoder2": _Family("Starcoder2", starcoder2.read_starcoder2, starcoder2.DEFAULTS),
    "bloom": _Family("Bloom", bloom.read_bloom, bloom.DEFAULTS),
    "mpt": _Family("Mpt", mpt.read_mpt, mpt.DEFAULTS),
    "falcon": _Family("Falcon", falcon.read_falcon, falcon.DEFAULTS),
}
"""By `model_type`."""


@dataclass(frozen=True, slots=True)
class NativeDescription:
    """A config.json that our own modules run."""

    architecture: str
    """Class name that transformers has for it."""
    config: NativeConfig
    eos_token_id: Any
    """A token id, a list of them or None."""


def read_native(values: Mapping[str, Any]) -> NativeDescription:
    """Read a config.json for our own modules.

    Args:
        values: of the file.

    Raises:
        NotNativeError: it is another family, or a kind of one of ours that the modules do not know.
    """
    model_type = values.get("model_type")
    family = _FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise NotNativeError(f"there is no module for {model_type!r}")
    raw = RawConfig(values, family.defaults)
    raw.refuse(*_NOT_DONE)
    if family.quant_method is None or quant_method(values) != family.quant_method:
        raw.refuse("quantization_config")
    architecture = family.name + family.head
    named = raw.get("architectures") or [architecture]
    if named not in ([architecture], [family.name + family.body]):
        raise NotNativeError(f"its architectures are {named!r}")
    return NativeDescription(architecture, _checked(family.read(raw)), raw.get("eos_token_id"))


def quant_method(values: Mapping[str, Any]) -> Any:
    """How a config.json says that weights are stored; None where it does not."""
    stored = values.get("quantization_config")
    return stored.get("quant_method") if isinstance(stored, dict) else None


def _checked(config: NativeConfig) -> NativeConfig:
    """With as many positions as it can tell apart.

    Raises:
        NotNativeError: elements of a head would be left without a partner, or a pair without a factor.
    """
    head_dim, max_len = config.heads.head_dim, config.max_len
    for rotary in filter(None, set(config.rotaries)):
        turned = rotary.turned(head_dim)
        if turned % 2 or turned == 0:
            raise NotNativeError(f"{turned} of {head_dim} elements of its heads are turned")
        if isinstance(rotary.scaling, PairScaling):
            max_len = min(max_len, rotary.scaling.original_len)
            if len(rotary.scaling.factors) != turned // 2:
                raise NotNativeError(f"its short_factor has {len(rotary.scaling.factors)} numbers")
    return replace(config, max_len=max_len)


def count_parameters(config: NativeConfig) -> int:
    """Of a model; what two layers share counts once."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config).parameters())


def build(config: NativeConfig, ranks: Ranks = ALONE) -> NativeModel:
    """A model without values, of the default type on the default device; a part of one knows who has the others."""
    return Decoder(config, ranks)
