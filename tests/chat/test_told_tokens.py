"""Where each token of a reply stands in its text, however the text is made."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from pagedchat.bundled import folder
from pagedchat.chat.replies import Reply
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence as EngineSequence
from pagedchat.engine.sequence import TokenLogprobs
from pagedchat.events import ToldToken, packed, unpacked
from tests.fakes import byte_tokenizer


def words() -> Tokenizer:
    """A tokenizer whose decoder is none of those that write bytes."""
    vocab = {word: index for index, word in enumerate(["<unk>", "the", "sea", "##side", "is", "wide", "."])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


TOKENIZERS = {
    "bytes": byte_tokenizer(),
    "the model in the box": Tokenizer.from_file(str(folder() / "tokenizer.json")),
    "word pieces": words(),
}


def told_by(
    tokenizer: Tokenizer,
    token_ids: list[int],
    *,
    cuts: Sequence[int] = (),
    begun: int = 0,
    strip_start: bool = False,
) -> tuple[str, list[ToldToken]]:
    """A reply of these tokens, taken in pieces: its text, and what is told."""
    sequence = EngineSequence(1)
    sequence.token_ids, sequence.num_prompt_tokens, sequence.num_begun_tokens = [1], 1, begun
    sequence.sampling_params = SamplingParams(logprobs=0, max_tokens=None)
    sequence.token_ids += token_ids[:begun]
    reply = Reply(sequence, tokenizer, strip_start=strip_start)
    told: list[ToldToken] = []
    for start, end in zip([begun, *cuts], [*cuts, len(token_ids)], strict=True):
        sequence.token_ids += token_ids[start:end]
        sequence.logprobs += [TokenLogprobs([token], [-0.5], 1) for token in token_ids[start:end]]
        reply.take()
        assert reply.told is not None
        new, num_before = reply.told.take()
        assert num_before == len(told)
        told += new
    reply.finish("length")
    return reply.text, told


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_tokens_places_cover_the_text_in_order(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    token_ids = data.draw(st.lists(st.integers(4, tokenizer.get_vocab_size() - 1), min_size=1, max_size=24))
    begun = data.draw(st.integers(0, len(token_ids)))
    cuts = sorted(data.draw(st.lists(st.integers(begun, len(token_ids)), max_size=3)))
    strip = data.draw(st.booleans())
    text, told = told_by(tokenizer, token_ids, cuts=cuts, begun=begun, strip_start=strip)
    assert [token.token_ids[0] for token in told] == token_ids
    assert [token.rank for token in told] == [0] * begun + [1] * (len(token_ids) - begun)
    covered: set[int] = set()
    for before, token in zip([None, *told], told, strict=False):
        assert 0 <= token.start <= token.end
        assert before is None or (before.start <= token.start and token.start <= before.end)
        covered.update(range(token.start, token.end))
    assert set(range(len(text.rstrip("\ufffd")))) <= covered


@pytest.mark.parametrize("name", ["bytes", "the model in the box"])
@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1, max_size=30).filter(lambda text: not text[0].isspace()))
def test_each_token_stands_where_its_bytes_are(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    token_ids = tokenizer.encode(text, add_special_tokens=False).ids
    written, told = told_by(tokenizer, token_ids)
    if not told or written != b"".join(token.texts[0] for token in told).decode("utf-8", "replace"):
        return  # a tokenizer that normalises: its text is another one
    at = 0
    for token in told:
        first, at = at, at + len(token.texts[0])
        characters = written.encode()[:first].decode("utf-8", "ignore")
        assert token.start == len(characters)
        assert token.end >= len(written.encode()[:at].decode("utf-8", "ignore"))


def test_a_text_that_is_stripped_at_the_start_begins_with_its_first_word() -> None:
    tokenizer = TOKENIZERS["bytes"]
    text, told = told_by(tokenizer, tokenizer.encode("  a b", add_special_tokens=False).ids, strip_start=True)
    assert text == "a b"
    assert [(token.start, token.end) for token in told] == [(0, 0), (0, 0), (0, 1), (1, 2), (2, 3)]


def test_logprobs_cross_exactly() -> None:
    numbers = list(unpacked(packed([-0.1, -12.75, 0.0])))
    assert list(unpacked(packed(numbers))) == numbers
    assert len(packed(numbers)) == 12
