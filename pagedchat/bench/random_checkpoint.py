"""Checkpoints of a given shape with random weights, as our own loader and transformers read them.

Speed does not depend on what the weights say, and no hub is needed. Imports no transformers.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from pagedchat.models.checkpoint_layout import Joined
from pagedchat.models.native import build, read_native

OPT_125M: dict[str, Any] = {
    "model_type": "opt", "architectures": ["OPTForCausalLM"], "vocab_size": 50272, "hidden_size": 768,
    "num_hidden_layers": 12, "ffn_dim": 3072, "num_attention_heads": 12, "max_position_embeddings": 2048,
    "word_embed_proj_dim": 768, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
}  # fmt: skip
"""The shape of facebook/opt-125m."""
LLAMA_1B: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048,
    "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 64, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "tie_word_embeddings": True, "bos_token_id": 128000, "eos_token_id": 128001,
}  # fmt: skip
"""The shape of Llama 3.2 1B, with a shorter context."""
USUAL_STD, LARGE_STD = 0.02, 0.1
"""Standard deviations of weights: what training begins with, and one with which replies do not repeat a token."""
_FIRST_BYTE = 4
"""Tokens before it have no text: ids that end a text are among them."""
_SHORTEST_WORD = 4


def write_checkpoint(
    folder: Path,
    shape: Mapping[str, Any],
    dtype: torch.dtype,
    device: torch.device,
    *,
    std: float = USUAL_STD,
    seed: int = 0,
) -> int:
    """Write `config.json` and `model.safetensors`.

    Norms leave what they get as it is, all other tensors are drawn from a normal distribution.

    Args:
        folder: an existing folder.
        shape: what `config.json` is to say; of a family that our own modules run.
        dtype: of the weights.
        device: where they are drawn; the values depend on it.
        std: standard deviation of the weights.
        seed: fixes them.

    Returns:
        Bytes of all weights, a tied head counted once.
    """
    described = read_native(shape).config
    with torch.device("meta"):
        model = build(described)
    places = model.places()
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {
        name: _values(name, place.shape, std, generator, described.norm.offset).to(dtype).cpu()
        for name, place in sorted(places.items())
    }
    if described.layout.merged_experts:
        tensors = _merged(tensors, model.joined())
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {**shape, "dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _merged(tensors: dict[str, torch.Tensor], joined: Joined) -> dict[str, torch.Tensor]:
    """Experts of a layer as one tensor; gates and values, which take turns, in one dimension."""
    flat = {name: tensor.flatten(-2) if tensor.dim() == 3 else tensor for name, tensor in tensors.items()}
    stacked = {name: torch.stack([flat.pop(part) for part in parts]) for name, parts in joined.items()}
    return flat | stacked


def write_byte_tokenizer(folder: Path) -> None:
    """Write a `tokenizer.json`, for programs that want text."""
    byte_tokenizer().save(str(folder / "tokenizer.json"))


def write_word_tokenizer(folder: Path, vocab_size: int) -> None:
    """The same where every other token is a word, so that whatever the model says is text."""
    words = (f"Ġ{_made_up_word(number)}" for number in range(vocab_size))
    _tokenizer(words, vocab_size).save(str(folder / "tokenizer.json"))


def _made_up_word(number: int) -> str:
    """Two to four syllables, another one for each number."""
    consonants, vowels = "bdfgklmnprstvz", "aeiou"
    word = ""
    while number or len(word) < _SHORTEST_WORD:
        number, syllable = divmod(number, len(consonants) * len(vowels))
        word += consonants[syllable // len(vowels)] + vowels[syllable % len(vowels)]
    return word


def byte_tokenizer() -> Tokenizer:
    """One that has a token for every byte."""
    return _tokenizer((), 0)


def _tokenizer(others: Iterable[str], vocab_size: int) -> Tokenizer:
    """Bytes, and behind them as many others as there is room for."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: i for i, token in enumerate(alphabet, _FIRST_BYTE)}
    ids |= {word: i for i, word in zip(range(_FIRST_BYTE + len(alphabet), vocab_size), others, strict=False)}
    tokenizer = Tokenizer(models.BPE(ids, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _values(
    name: str, shape: torch.Size, std: float, generator: torch.Generator, norm_offset: float
) -> torch.Tensor:
    if "norm" in name or ".ln_" in name:
        return torch.full(shape, 1 - norm_offset if name.endswith("weight") else 0.0)
    return torch.empty(shape, device=generator.device).normal_(0, std, generator=generator)
