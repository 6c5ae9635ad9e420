"""The names of vLLM's package, where its users' scripts look for them: `from pagedchat.vllm import LLM`.

A script that says `pagedchat.vllm` where it said `vllm` runs here. Nothing is defined in these modules but what has
no other place; what the names stand for loads on first use.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "AsyncEngineArgs": "pagedchat.vllm.engine.arg_utils",
    "AsyncLLM": "pagedchat.vllm.v1.engine.async_llm",
    "BeamSearchParams": "pagedchat.engine.groups.beam_params",
    "CompletionOutput": "pagedchat.outputs",
    "EngineArgs": "pagedchat.vllm.engine.arg_utils",
    "LLM": "pagedchat.api.llm",
    "LLMEngine": "pagedchat.api.engine",
    "RequestOutput": "pagedchat.outputs",
    "SamplingParams": "pagedchat.engine.sampling_params",
    "TextPrompt": "pagedchat.requests.prompts",
    "TokensPrompt": "pagedchat.requests.prompts",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pagedchat.vllm' has no attribute {name!r}")
