"""pagedchat: chats side by side on one paged-attention engine.

`LLM`, `LLMEngine` and what they take and give load on first use, so that importing the package costs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagedchat.api.async_llm import AsyncLLM
    from pagedchat.api.engine import LLMEngine
    from pagedchat.api.llm import LLM
    from pagedchat.engine.groups.beam_params import BeamSearchParams
    from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
    from pagedchat.outputs import BeamSearchOutput, RequestOutput
    from pagedchat.structured.params import StructuredOutputsParams

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "AsyncLLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "LLMEngine",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "StructuredOutputsParams",
    "__version__",
]

_HOMES = {
    "AsyncLLM": "pagedchat.api.async_llm",
    "BeamSearchOutput": "pagedchat.outputs",
    "BeamSearchParams": "pagedchat.engine.groups.beam_params",
    "LLM": "pagedchat.api.llm",
    "LLMEngine": "pagedchat.api.engine",
    "RequestOutput": "pagedchat.outputs",
    "RequestOutputKind": "pagedchat.engine.sampling_params",
    "SamplingParams": "pagedchat.engine.sampling_params",
    "StructuredOutputsParams": "pagedchat.structured.params",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pagedchat' has no attribute {name!r}")
