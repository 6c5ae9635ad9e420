"""What a server runs, and what it is therefore known to take beyond OpenAI's own parameters.

A server says who it is in its list of models. Of one that does not, only what OpenAI's API has is taken for
granted: some refuse what they do not know, others pass over it, and the user would not know which.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_AS_VLLM = ("top_k", "min_p", "repetition_penalty", "stop_token_ids", "ignore_eos")


@dataclass(frozen=True, slots=True)
class ServerKind:
    """One kind of server."""

    name: str = ""
    """As people write it; empty: it did not say."""
    extras: Mapping[str, str] = field(default_factory=dict)
    """Sampling fields of ours that its requests take -> what it calls them."""
    going_on: Mapping[str, Any] | None = None
    """What a request has in it that ends with a part of a reply and is to go on from there; None: not known."""
    counts_each: bool = False
    """Whether it tells the number of tokens with every piece, if asked."""

    @property
    def continues(self) -> bool:
        """Whether it is known to go on in the middle of a reply."""
        return self.going_on is not None


def _same(*names: str) -> Mapping[str, str]:
    return MappingProxyType({name: name for name in names})


_CONTINUE = MappingProxyType({"continue_final_message": True, "add_generation_prompt": False})
UNKNOWN = ServerKind()
_KINDS = {
    "vllm": ServerKind("vLLM", _same(*_AS_VLLM), _CONTINUE, counts_each=True),
    "sglang": ServerKind("SGLang", _same(*_AS_VLLM), MappingProxyType({"continue_final_message": True})),
    "pagedchat": ServerKind("pagedchat", _same(*_AS_VLLM), _CONTINUE, counts_each=True),
    "llamacpp": ServerKind(
        "llama.cpp",
        MappingProxyType({
            "top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repeat_penalty", "ignore_eos": "ignore_eos",
        }),
        MappingProxyType({}),  # it goes on with the last turn where that is the assistant's
    ),
    "library": ServerKind("Ollama"),
}  # fmt: skip
"""What stands under `owned_by` in a list of models -> the kind."""


NAMES = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "ollama": "library", "pagedchat": "pagedchat"}
"""What a settings file calls a kind -> what stands under `owned_by`."""


def kind_of(owner: str) -> ServerKind:
    """By what a model's `owned_by` says."""
    return _KINDS.get(owner.lower(), UNKNOWN)
