"""Checkpoints of random weights to run for long: what lies around the model is what is looked at."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OPT_125M_NAME = "opt-125m"
TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 300, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""Takes hardly any time to run."""
TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}<assistant>"
"""A checkpoint's own template, so that the process that runs it is there too."""


@contextmanager
def tiny_checkpoint() -> Iterator[str]:
    """A folder with a tiny model, a tokenizer with a token a byte, and a chat template; gone afterwards."""
    with _checkpoint(TINY_LLAMA, "float32") as folder:
        yield folder


@contextmanager
def opt_125m() -> Iterator[str]:
    """A folder with a model of the shape of OPT-125m; gone afterwards."""
    from pagedchat.bench.random_checkpoint import OPT_125M  # noqa: PLC0415 - loads torch

    with _checkpoint(OPT_125M, "float16") as folder:
        yield folder


@contextmanager
def _checkpoint(shape: Mapping[str, Any], dtype: str) -> Iterator[str]:
    import torch  # noqa: PLC0415 - seconds, and not for whoever brings a model

    from pagedchat.bench.random_checkpoint import LARGE_STD, write_byte_tokenizer, write_checkpoint  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="pagedchat-soak-") as name:
        folder = Path(name)
        write_checkpoint(folder, shape, getattr(torch, dtype), torch.device("cpu"), std=LARGE_STD)
        write_byte_tokenizer(folder)
        settings = {"chat_template": TEMPLATE, "add_bos_token": False}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        yield name
