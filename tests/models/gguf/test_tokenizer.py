"""The tokenizer of a GGUF file gives the tokens of the one that it was made from."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from pagedchat.models.gguf.tokenizer import load_gguf_tokenizer
from pagedchat.resources import resource_dir
from tools.fuzz.gguf_files import gguf_bytes

TEXTS = [
    "The tide was out, and so was the cat.", "  two  spaces\n\n\tand 12345 tabs", "I'll say it's DON'T!", "",
    "海と猫 \U0001f642 naïve Ünïcödé", "<s>Hello</s> world", "x\r\ny   ", "a" * 40,
]  # fmt: skip
CORPUS = [path.read_text() for path in sorted((resource_dir("assets") / "..").resolve().glob("*.md"))]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)


def loaded(folder: Path, **values: Any) -> Tokenizer:
    named = {f"tokenizer.ggml.{name}": value for name, value in values.items()}
    path = folder / "m.gguf"
    path.write_bytes(gguf_bytes(named, []))
    return load_gguf_tokenizer("m", path)


def same(ours: Tokenizer, theirs: Tokenizer) -> None:
    for text in TEXTS:
        assert ours.encode(text).ids == theirs.encode(text).ids, text
        ids = theirs.encode(text).ids
        assert ours.decode(ids) == theirs.decode(ids), text


def test_that_of_the_model_in_the_box(tmp_path: Path) -> None:
    """Byte-level, digits one by one, with a token at the beginning and some that are found before all else."""
    folder = resource_dir("assets") / "model"
    saved = json.loads((folder / "tokenizer.json").read_text())
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = sorted(theirs.get_vocab(), key=theirs.token_to_id)
    control = {added["content"] for added in saved["added_tokens"]}
    ours = loaded(
        tmp_path, model="gpt2", pre="smollm", tokens=tokens,
        token_type=[3 if token in control else 1 for token in tokens],
        merges=[" ".join(pair) for pair in saved["model"]["merges"]],
        bos_token_id=1, eos_token_id=2, add_bos_token=True,
    )  # fmt: skip
    assert ours.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    same(ours.tokenizer, theirs)


@pytest.mark.parametrize(
    ("cut", "pattern"), [("llama-bpe", LLAMA3), ("qwen2", LLAMA3.replace("{1,3}", ""))], ids=["llama-bpe", "qwen2"]
)
def test_words_by_a_pattern(cut: str, pattern: str, tmp_path: Path) -> None:
    theirs = Tokenizer(BPE())
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    theirs.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    theirs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    theirs.train_from_iterator(CORPUS, BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(theirs.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(pair) for pair in model["merges"]]
    ours = loaded(tmp_path, model="gpt2", pre=cut, tokens=tokens, merges=merges, add_bos_token=False)
    same(ours.tokenizer, theirs)
    if cut == "llama-bpe":  # by other words it has other tokens
        others = loaded(tmp_path, model="gpt2", pre="qwen2", tokens=tokens, merges=merges, add_bos_token=False)
        assert any(others.tokenizer.encode(text).ids != theirs.encode(text).ids for text in TEXTS)


@pytest.mark.parametrize("in_front", [True, False])
def test_pieces_by_their_scores(in_front: bool, tmp_path: Path) -> None:
    """Of SentencePiece's kind: the merges are worked out, bytes stand for what no piece is."""
    special = ["<unk>", "<s>", "</s>"]
    as_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    spaces = normalizers.Replace(" ", "▁")
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if in_front else spaces
    trained = Tokenizer(BPE())
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizers.Split(Regex("▁+[^▁]*"), "isolated")  # no piece goes over a space
    trained.train_from_iterator(CORPUS, BpeTrainer(vocab_size=1200, limit_alphabet=70, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    merged = ["".join(pair) for pair in model["merges"]]
    letters = sorted(set(model["vocab"]) - set(merged))
    tokens = [*special, *as_bytes, *merged, *letters]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    theirs = Tokenizer(
        BPE(
            vocabulary,
            [tuple(pair) for pair in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    theirs.normalizer = normalizer
    theirs.add_special_tokens(special)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    theirs.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if in_front else steps)
    ours = loaded(
        tmp_path, model="llama", tokens=tokens,
        token_type=[2, 3, 3, *([6] * 256), *([1] * (len(merged) + len(letters)))],
        scores=[0.0] * 259 + [-float(rank) for rank in range(len(merged) + len(letters))],
        bos_token_id=1, eos_token_id=2, unknown_token_id=0, add_space_prefix=in_front, add_bos_token=False,
    )  # fmt: skip
    same(ours.tokenizer, theirs)
