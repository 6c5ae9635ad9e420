"""A checkpoint as OPT's own was published: pickled weights, `vocab.json` and `merges.txt`, nothing else."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import pre_tokenizers

from tests.helpers_models import make_checkpoint

SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>"]
MERGES = [("h", "e"), ("Ġ", "t"), ("Ġt", "he"), ("l", "l"), ("he", "ll"), ("hell", "o")]


def save_opt_files(folder: Path) -> Path:
    """Random weights of OPT's architecture with OPT's kinds of files; returns the folder."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL_TOKENS, *alphabet, *("".join(pair) for pair in MERGES)]
    make_checkpoint(folder, vocab_size=len(tokens))
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
