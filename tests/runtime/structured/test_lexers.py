"""Beginnings of a form, each with a lexer of its own."""

import threading

import numpy as np
import pytest
from tokenizers import Tokenizer

from pagedchat import bundled
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError
from pagedchat.runtime.structured import grammars as grammars_module
from pagedchat.runtime.structured import lexers as lexers_module
from pagedchat.runtime.structured.grammar import fill_masks, num_words
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.runtime.structured.lexers import CHATS_EACH, Lexers
from pagedchat.structured.params import StructuredOutputsParams as Form

VOCAB_SIZE, EOS = 8192, 2


class Reply:
    """Weakly referred to, as replies are."""


def taken(lexers: Lexers, count: int) -> list[tuple[Reply, object]]:
    replies = []
    for _ in range(count):
        lexer, reply = lexers.emptiest(), Reply()
        lexer.followers.add(reply)
        replies.append((reply, lexer.matcher))
    return replies


def say_long(lexers: Lexers) -> None:
    """Masks take long."""
    for _ in range(100):
        lexers.note(1.0)


def test_all_replies_begin_at_one_lexer_unless_masks_take_long_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lexers_module, "MOST_LEXERS", 2)
    lexers = Lexers("first", lambda: "another")
    for _ in range(30):
        for _ in range(5):  # as of a form that is new
            lexers.note(1.0)
        lexers.note(1e-4)
    replies = taken(lexers, 5 * CHATS_EACH)
    assert {matcher for _, matcher in replies} == {"first"}
    say_long(lexers)
    lexers.note(1e-4)  # in parts it may be quick
    assert {matcher for _, matcher in taken(lexers, 1)} == {"another"}


def test_more_replies_begin_at_more_lexers_and_those_that_end_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexers_module, "MOST_LEXERS", 3)
    names = iter(["second", "third", "fourth"])
    lexers = Lexers("first", lambda: next(names))
    say_long(lexers)
    replies = taken(lexers, 5 * CHATS_EACH)
    of_each = [sum(matcher == name for _, matcher in replies) for name in ("first", "second", "third")]
    assert sum(of_each) == len(replies)
    assert of_each[0] >= CHATS_EACH
    assert max(of_each) - min(of_each) <= 1
    del replies[: 2 * CHATS_EACH]  # all of the first and the second among them
    assert [matcher for _, matcher in taken(lexers, 12)].count("third") == 0


def test_what_takes_long_is_made_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexers_module, "MOST_LEXERS", 2)
    go_on, made = threading.Event(), threading.Event()

    def slowly() -> str:
        assert go_on.wait(20)
        made.set()
        return "second"

    lexers = Lexers("first", slowly, seconds=1.0)
    say_long(lexers)
    replies = taken(lexers, CHATS_EACH + 3)
    assert {matcher for _, matcher in replies} == {"first"}
    go_on.set()
    assert made.wait(20)
    lexers._making.join(20)
    assert lexers.emptiest().matcher == "second"


def test_a_lexer_that_is_given_up_gets_no_more_replies() -> None:
    names = iter(["second", "third"])
    lexers = Lexers("first", lambda: next(names))
    first = lexers.emptiest()
    assert lexers.instead_of(first).matcher == "second"
    assert lexers.emptiest().matcher == "second"
    assert lexers.instead_of(first).matcher == "second"  # of another of its replies
    assert lexers.instead_of(lexers.emptiest()).matcher == "third"
    assert Lexers("first").instead_of(first) is None


def test_a_reply_goes_on_when_the_lexer_that_many_share_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is not too much for a lexer, all of them are: each is at another count of another letter."""
    pytest.importorskip("llguidance")
    monkeypatch.setitem(grammars_module._LIMITS, "max_lexer_states", 700)
    monkeypatch.setattr(lexers_module, "MOST_LEXERS", 1)
    tokenizer = Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))
    letters = "abcdefgh"
    form = Form(regex="|".join(f"{letter}{{0,250}}!" for letter in letters))
    grammar = Grammars(tokenizer, VOCAB_SIZE, [EOS]).compile(form)
    row, replies = np.zeros((1, num_words(VOCAB_SIZE)), np.int32), []
    for letter in letters:
        sequence = Sequence(len(replies))
        sequence.token_ids = [tokenizer.token_to_id(letter)] * 240
        fill_masks(row, [(grammar, sequence)])
        assert row[0, tokenizer.token_to_id("!") // 32] >> tokenizer.token_to_id("!") % 32 & 1
        replies.append(sequence)
    assert len({id(grammar.follow(sequence).lexer) for sequence in replies}) > 1
    for sequence in replies:  # those of a lexer that is given up go on while it lasts
        sequence.token_ids.append(tokenizer.token_to_id("!"))
        fill_masks(row, [(grammar, sequence)])
        assert row[0, EOS // 32] >> EOS & 1


def test_what_is_too_much_for_any_lexer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llguidance")
    monkeypatch.setitem(grammars_module._LIMITS, "max_lexer_states", 700)
    tokenizer = Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))
    grammar = Grammars(tokenizer, VOCAB_SIZE, [EOS]).compile(Form(json={"type": "string", "maxLength": 2000}))
    sequence = Sequence(1)
    sequence.token_ids = [tokenizer.token_to_id('"')] + [tokenizer.token_to_id("a")] * 1800
    row = np.zeros((1, num_words(VOCAB_SIZE)), np.int32)
    with pytest.raises(RequestError, match=r"cannot be held to its form any more.*too many states"):
        fill_masks(row, [(grammar, sequence)])
