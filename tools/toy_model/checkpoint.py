"""A trained model as a folder that transformers and pagedchat read."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, OPTForCausalLM

from tools.toy_model.bpe import BOS, EOS, PAD, save_tokenizer
from tools.toy_model.sampling import DEFAULTS


def save_checkpoint(model: OPTForCausalLM, tokenizer: Tokenizer, folder: Path, dtype: torch.dtype) -> None:
    """Write config.json, generation_config.json, model.safetensors and the tokenizer's files.

    Args:
        model: turned into `dtype` in place.
        tokenizer: goes along.
        folder: made if it is not there.
        dtype: of the weights on disk.
    """
    model.to("cpu", dtype)
    model.config.dtype = dtype
    model.generation_config = GenerationConfig(bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, **DEFAULTS)
    model.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        _without_versions(folder / name)
    save_tokenizer(tokenizer, folder, int(model.config.max_position_embeddings))
    for path in folder.iterdir():  # the library leaves the weights to their owner alone
        path.chmod(0o644)


def _without_versions(path: Path) -> None:
    """The library writes its own version into the file; nothing reads it, and it changes with every release."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings.pop("transformers_version", None)
    path.write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n", encoding="utf-8")
