"""The families that our own modules run: their configs and how they are built. Knows no files.

Everything else runs through transformers, which takes seconds to import; nothing here imports it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pagedchat.models import llama_config, opt_config
from pagedchat.models.llama import LlamaModel
from pagedchat.models.llama_config import LlamaConfig
from pagedchat.models.native_model import NativeModel
from pagedchat.models.opt import OptModel
from pagedchat.models.opt_config import OptConfig
from pagedchat.models.raw_config import NotNativeError, RawConfig

NativeConfig = OptConfig | LlamaConfig

_NOT_DONE = ("quantization_config", "is_encoder_decoder", "add_cross_attention", "kv_lora_rank", "text_config")
"""Whatever sets one of these is more than its family."""


@dataclass(frozen=True, slots=True)
class _Family:
    architecture: str
    body: str
    """Class name of a checkpoint saved without its head."""
    read: Callable[[RawConfig], NativeConfig]
    defaults: Mapping[str, Any]


_FAMILIES = {
    "opt": _Family("OPTForCausalLM", "OPTModel", opt_config.read_opt_config, opt_config.DEFAULTS),
    "llama": _Family("LlamaForCausalLM", "LlamaModel", llama_config.read_llama_config, llama_config.LLAMA_DEFAULTS),
    "mistral": _Family(
        "MistralForCausalLM", "MistralModel", llama_config.read_mistral_config, llama_config.MISTRAL_DEFAULTS
    ),
    "qwen2": _Family("Qwen2ForCausalLM", "Qwen2Model", llama_config.read_qwen2_config, llama_config.QWEN2_DEFAULTS),
    "qwen3": _Family("Qwen3ForCausalLM", "Qwen3Model", llama_config.read_qwen3_config, llama_config.QWEN3_DEFAULTS),
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
    named = raw.get("architectures") or [family.architecture]
    if named not in ([family.architecture], [family.body]):
        raise NotNativeError(f"its architectures are {named!r}")
    return NativeDescription(family.architecture, family.read(raw), raw.get("eos_token_id"))


def build(config: NativeConfig) -> NativeModel:
    """A model without values, of the default type on the default device."""
    return OptModel(config) if isinstance(config, OptConfig) else LlamaModel(config)
