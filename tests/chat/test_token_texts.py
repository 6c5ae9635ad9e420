"""The bytes of tokens, one after the other, are the text; and every token is told once."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.chat.token_texts import token_bytes
from pagedchat.service.reply_feed import TokenTeller
from tests.fakes import EOS, byte_tokenizer
from tests.service.engine_rig import EngineRig, ask

TEXTS = ["Hello, world", "naïve café €5", "emoji 🤗🏽 and 漢字", "tabs\tand\nlines", " two  spaces "]


def byte_level_bpe() -> Tokenizer:
    """Merges learnt from the texts' beginnings, so that most characters beyond ASCII stay in pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["</s>", "<｜end｜>"],
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(["Hello world", "two spaces and lines"] * 4, trainer)
    return tokenizer


def unigram() -> Tokenizer:
    """Sentencepiece as Llama has it: a sign for the space, and bytes for what is not in the vocabulary."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁two", "▁spaces", "Hello", "▁Hello", "ll"]
    pieces += [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0, True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def metaspace() -> Tokenizer:
    pieces = ["<unk>", "▁", "▁Hello", ",", "▁world", *(chr(c) for c in range(ord("a"), ord("z") + 1))]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def joined(tokenizer: Tokenizer, text: str) -> bytes:
    ids = tokenizer.encode(text).ids
    assert len(ids) > 1
    return b"".join(map(token_bytes(tokenizer), ids))


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_tokens_make_up_the_text(text):
    assert joined(byte_level_bpe(), text) == text.encode()
    assert joined(byte_tokenizer(), text) == text.encode()


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_tokens_make_up_the_text_after_the_space_that_it_adds(text):
    assert joined(unigram(), text) == b" " + text.encode()


def test_metaspace_tokens_make_up_the_text_after_the_space_that_it_adds():
    assert joined(metaspace(), "Hello, world") == b" Hello, world"


def test_a_part_of_a_character_is_told_as_its_bytes():
    tokenizer = unigram()
    bytes_of = token_bytes(tokenizer)
    assert bytes_of(tokenizer.token_to_id("<0xE2>")) == b"\xe2"
    assert bytes_of(tokenizer.token_to_id("▁two")) == b" two"


def test_special_tokens_are_told_as_they_are_written():
    tokenizer = byte_level_bpe()
    bytes_of = token_bytes(tokenizer)
    assert [bytes_of(tokenizer.token_to_id(token)) for token in ("</s>", "<｜end｜>")] == [
        b"</s>", "<｜end｜>".encode()
    ]  # fmt: skip


def test_other_tokenizers_decode_token_by_token():
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    assert [token_bytes(tokenizer)(i) for i in (1, 2)] == [b"play", b"##ing"]
    tokenizer.decoder = None
    assert token_bytes(tokenizer)(1) == b"play"


def test_ids_outside_the_vocabulary_have_no_text():
    assert token_bytes(byte_tokenizer())(99_999) == b""


def test_without_a_tokenizer_nothing_is_told():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi", max_tokens=2))
    rig.run_dry()
    (report, *_) = rig.of(ev.Steps)[0].reports
    assert TokenTeller(None).news(report) is None
    assert TokenTeller(rig.tokenizer).news(report) is not None


def test_every_token_is_told_once_before_the_first_report_that_has_it():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hello", max_tokens=30), ask(2, 20, "Hello", max_tokens=30))
    rig.run_dry()
    known: dict[int, bytes] = {}
    for event in rig.events:
        if isinstance(event, ev.TokenTexts):
            assert not known.keys() & set(event.token_ids)
            known.update(zip(event.token_ids, event.texts, strict=True))
        elif isinstance(event, ev.Steps):
            assert known.keys() >= {i for report in event.reports for i in token_ids(report)}
    held = rig.core.sequences[1].token_ids
    assert b"".join(known[i] for i in held).decode() == rig.held_text(1)
    assert known[rig.tokenizer.token_to_id(EOS)] == EOS.encode()


def token_ids(report: ev.StepReport) -> list[int]:
    prompts = [event.token_ids for event in report.events if isinstance(event, ce.SequenceExtended)]
    return [i for ids in [*prompts, *(entry.token_ids for entry in report.batch)] for i in ids]
