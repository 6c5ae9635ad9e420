"""Pieces of text join to the text of all tokens, and no piece ends inside a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from pagedchat.chat.detokenizer import decode_after, detokenizer
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
