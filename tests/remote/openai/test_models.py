"""What is read of a server's list of models; those of llama.cpp as its own server told them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pagedchat.remote.openai.models import find_models

VLLM = {"id": "org/a", "owned_by": "vllm", "max_model_len": 4096}
LLAMA = {"id": "a.gguf", "owned_by": "llamacpp", "meta": {"n_vocab": 8192, "n_ctx": 1024, "n_ctx_train": 2048}}
OLD_LLAMA = {"id": "a.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 2048}}
SILENT = {"id": "a", "owned_by": "library"}


def client_of(*models: dict[str, Any]) -> Any:
    async def listed() -> Any:
        return SimpleNamespace(data=[*models])

    return SimpleNamespace(models=SimpleNamespace(list=listed))


@pytest.mark.parametrize(
    ("model", "kind", "context"),
    [
        (VLLM, "vLLM", 4096),
        (LLAMA, "llama.cpp", 1024),
        (OLD_LLAMA, "llama.cpp", 2048),
        (SILENT, "Ollama", 0),
        ({**LLAMA, "meta": {"n_ctx": "many", "n_ctx_train": -1}}, "llama.cpp", 0),
    ],
    ids=["vllm", "llama.cpp", "old llama.cpp", "silent", "nonsense"],
)
def test_the_context_is_the_one_that_a_chat_gets_there(model: dict[str, Any], kind: str, context: int) -> None:
    found = asyncio.run(find_models(client_of(model)))
    assert (found.kind.name, found.contexts) == (kind, {model["id"]: context})
