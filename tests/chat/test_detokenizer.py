"""Pieces of text join to the text of all tokens, and no piece ends inside a character."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pagedchat.chat.detokenizer import (
    MAX_PENDING,
    ByteDetokenizer,
    StreamDetokenizer,
    decode_after,
    detokenizer,
)
from tests.fakes import EOS, SPECIAL_TOKENS, byte_tokenizer

TOKENIZER = byte_tokenizer()
VOCAB = TOKENIZER.get_vocab_size()


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    """Words with their space in front, as SentencePiece has them."""
    vocab = {word: i for i, word in enumerate(["<unk>", "▁Hello", "▁world", "!", "▁"])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


@settings(deadline=None)
@given(st.text(max_size=30))
def test_characters_come_out_whole(text):
    decoding = detokenizer(TOKENIZER)
    pieces = [decoding.append([token_id]) for token_id in encode(text)]
    assert "".join(pieces) + decoding.finish() == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@settings(deadline=None)
@given(st.lists(st.integers(len(SPECIAL_TOKENS), VOCAB - 1), max_size=30))
def test_invalid_bytes_become_replacement_characters(token_ids):
    decoding = detokenizer(TOKENIZER)
    assert decoding.append(token_ids) + decoding.finish() == TOKENIZER.decode(token_ids)


def test_emoji_waits_for_its_last_token():
    decoding = detokenizer(TOKENIZER)
    assert [decoding.append([token_id]) for token_id in encode("a🤗b")] == ["a", "", "", "", "🤗", "b"]


def test_first_word_has_its_space_in_the_middle_of_a_text_only(words):
    hello, world = 1, 2
    assert detokenizer(words).append([hello, world]) == "Hello world"
    assert detokenizer(words, context_ids=[hello]).append([world]) == " world"


def test_context_that_ends_inside_a_character_is_not_given_out():
    context = encode("a🤗")[:-1]
    assert detokenizer(TOKENIZER, context).append(encode("b")) == "b"


def test_special_tokens_are_left_out_or_kept():
    token_ids = [*encode("a"), TOKENIZER.token_to_id(EOS), *encode("b")]
    assert detokenizer(TOKENIZER).append(token_ids) == "ab"
    assert detokenizer(TOKENIZER, skip_special_tokens=False).append(token_ids) == "a</s>b"


@settings(deadline=None)
@given(st.text(max_size=20), st.integers(0, 40))
def test_fork_goes_on_alone(text, at):
    token_ids = encode(text)
    decoding = detokenizer(TOKENIZER)
    before = decoding.append(token_ids[:at])
    twin = decoding.fork()
    decoding.append(encode("zzz"))
    assert before + twin.append(token_ids[at:]) + twin.finish() == text


def test_text_goes_on_after_finish():
    decoding = detokenizer(TOKENIZER)
    decoding.append(encode("🤗")[:2])
    assert decoding.finish() == "\ufffd"
    assert decoding.append(encode("ok")) == "ok"


def test_decode_after_gives_only_the_new_text(words):
    assert decode_after(words, [1], [2, 3]) == " world!"
    assert decode_after(TOKENIZER, encode("a"), [*encode("b"), TOKENIZER.token_to_id(EOS)]) == "b</s>"


# --- tokenizers of every kind, in pieces of any length ------------------------------------------------


CORPUS = [
    "naïve café über alles",
    "日本語のテキスト",
    "emoji 🤗🏽 and 漢字 stay in pieces",
    "tabs\tand\nlines  two",
]


def trained() -> Tokenizer:
    """Byte-level BPE whose merges join bytes of several characters, and halves of them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["</s>"],
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece(*, strips: bool) -> Tokenizer:
    """Signs for spaces and bytes for what is not in the vocabulary, as Llama 2 (strips) and Gemma have them."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁▁", "▁sea", "sea", "▁the", "日"]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0, True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if strips else [])])
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


TRAINED = trained()
KINDS = {
    "byte level": TRAINED,
    "sentencepiece": sentencepiece(strips=True),
    "sentencepiece with its spaces": sentencepiece(strips=False),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(st.data())
def test_text_is_that_of_all_tokens_however_they_are_cut_into_pieces(kind: str, data: st.DataObject) -> None:
    """Bytes that are no UTF-8 are left to the next test where a tokenizer counts them in a way of its own."""
    tokenizer = KINDS[kind]
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=24))
    whole = tokenizer.decode(token_ids)
    cuts = data.draw(st.lists(st.integers(0, len(token_ids)), max_size=6).map(sorted))
    decoding = detokenizer(tokenizer)
    assert isinstance(decoding, ByteDetokenizer)
    pieces = [decoding.append(token_ids[a:b]) for a, b in pairwise([0, *cuts, len(token_ids)])]
    text = "".join(pieces) + decoding.finish()
    if kind == "byte level" or "\ufffd" not in whole:
        assert text == whole
    one_by_one = detokenizer(tokenizer)
    assert text == "".join([one_by_one.append([token_id]) for token_id in token_ids]) + one_by_one.finish()


@settings(deadline=None)
@given(st.lists(st.integers(0, 262), min_size=1, max_size=9), st.lists(st.integers(0, 262), max_size=12))
def test_text_after_a_context_is_what_the_whole_has_more(context: list[int], token_ids: list[int]) -> None:
    tokenizer = KINDS["sentencepiece"]
    before, whole = tokenizer.decode(context), tokenizer.decode(context + token_ids)
    decoding = detokenizer(tokenizer, context)
    text = decoding.append(token_ids) + decoding.finish()
    if before and "\ufffd" not in whole + before:
        assert before + text == whole


def test_each_byte_that_is_no_character_is_one_sign_where_the_tokenizer_has_it_so() -> None:
    tokenizer = KINDS["sentencepiece"]
    broken = [tokenizer.token_to_id(token) for token in ("<0xE2>", "<0x82>", "sea")]
    decoding = detokenizer(tokenizer)
    assert decoding.append(broken) == tokenizer.decode(broken) == "\ufffd\ufffdsea"
    assert detokenizer(TRAINED).append(TRAINED.encode("€").ids[:1]) == ""


def test_other_decoders_are_asked_token_by_token() -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    decoding = detokenizer(tokenizer)
    assert isinstance(decoding, StreamDetokenizer)
    assert [decoding.append([token_id]) for token_id in (1, 2, 1)] == ["play", "ing", " play"]
    stripping_more = sentencepiece(strips=True)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 2, 0)]
    stripping_more.decoder = decoders.Sequence(steps)
    assert isinstance(detokenizer(stripping_more), StreamDetokenizer)


def test_tokens_without_text_are_given_up_after_some() -> None:
    decoding = StreamDetokenizer(TOKENIZER)
    nothing = VOCAB + 7
    assert decoding.append([nothing] * (3 * MAX_PENDING) + encode("ab")) == "ab"
    assert not decoding.is_inside_character
