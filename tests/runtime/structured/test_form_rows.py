"""Masks of steps that follow one another: those of replies followed from their first token, whatever happens to
them in between."""

import random
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from pagedchat import bundled
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.structured import lexers as lexers_module
from pagedchat.runtime.structured import mask_jobs as jobs_module
from pagedchat.runtime.structured.form_rows import FormRows
from pagedchat.runtime.structured.grammar import Grammar, fill_masks, num_words
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.runtime.structured.mask_jobs import MaskRows
from pagedchat.structured.params import StructuredOutputsParams as Form

pytest.importorskip("llguidance")
VOCAB_SIZE, EOS = 8192, 2
LIST = Form(json={"type": "array", "items": {"type": "integer"}, "maxItems": 30})
TEXT = Form(json={"type": "object", "properties": {"text": {"type": "string", "minLength": 90}}})
FREE = Form(json={"type": "array", "items": {"type": "string"}, "minItems": 50})
COUNTED = Form(json={"type": "array", "items": {"type": "string", "minLength": 60}, "minItems": 50})
LONG = Form(json={"type": "array", "items": {"type": "string", "minLength": 400}, "minItems": 3})
PROMPT = [7, 7, 7]


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    tokenizer = Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))
    return Grammars(tokenizer, VOCAB_SIZE, [EOS])


def sequences_of(grammars: Grammars, forms: list[Form | None]) -> list[Sequence]:
    sequences = [Sequence(i) for i in range(len(forms))]
    for sequence, form in zip(sequences, forms, strict=True):
        sequence.token_ids, sequence.num_prompt_tokens = PROMPT.copy(), len(PROMPT)
        sequence.stop_token_ids = frozenset([EOS])
        sequence.grammar = None if form is None else grammars.compile(form)
    return sequences


def memory(num_rows: int) -> tuple[np.ndarray, MaskRows]:
    masks = np.zeros((num_rows, num_words(VOCAB_SIZE)), np.int32)
    return masks, MaskRows.of(masks)


def expected(sequence: Sequence) -> np.ndarray:
    """By a matcher that has seen nothing but this reply."""
    row = np.zeros((1, num_words(VOCAB_SIZE)), np.int32)
    fill_masks(row, [(Grammar(sequence.grammar._matcher, VOCAB_SIZE), sequence)])
    return row[0]


def allowed(row: np.ndarray) -> list[int]:
    return np.nonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[:VOCAB_SIZE])[0].tolist()


@pytest.mark.parametrize(("num_lexers", "num_chats"), [(1, 3), (1, 14), (3, 40)])
def test_masks_made_before_replies_have_their_tokens_are_those_made_after(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch, num_lexers: int, num_chats: int
) -> None:
    for module in (jobs_module, lexers_module):
        monkeypatch.setattr(module, "MOST_LEXERS", num_lexers)
    monkeypatch.setattr(lexers_module, "_LONG_STEPS", 0)  # as if masks took long
    monkeypatch.setattr(lexers_module, "_QUICK", float("inf"))  # however busy the machine is
    if num_lexers > 1:
        monkeypatch.setattr(jobs_module, "_ALONE_SECONDS", 0.0)
    draw_from = random.Random(num_chats)
    forms = [(LIST, None, TEXT)[i % 3] for i in range(num_chats)]
    sequences = sequences_of(Grammars(grammars._tokenizer, VOCAB_SIZE, [EOS]), forms)
    rows = FormRows(sequences)
    masks, there = memory(len(rows))
    rows.follow(sequences, there)
    assert len({id(each.lexer) for each, _ in rows._jobs.replies}) == (2 if num_chats < 40 else 4)
    ended = 0
    for _ in range(40):
        starts = [len(sequence.token_ids) for sequence in sequences]
        tokens = []
        for sequence in sequences:
            choices = [3] if sequence.grammar is None else allowed(masks[rows.row_of(sequence)])
            tokens.append(EOS if EOS in choices and draw_from.random() < 0.3 else draw_from.choice(choices))
        assert rows.go_on(sequences, starts, tokens, there) is not None
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.token_ids.append(token)
        ending = [sequence for sequence in sequences if sequence.token_ids[-1] == EOS]
        ended += len(ending)
        if ending:
            sequences = [sequence for sequence in sequences if sequence not in ending]
        for sequence in sequences:
            if sequence.grammar is not None:
                assert (masks[rows.row_of(sequence)] == expected(sequence)).all()
    assert ended > 0


def test_whoever_is_not_where_he_is_thought_to_be_is_followed_anew(grammars: Grammars) -> None:
    sequences = sequences_of(grammars, [LIST, TEXT])
    rows = FormRows(sequences)
    masks, there = memory(2)
    rows.follow(sequences, there)
    tokens = [allowed(row)[0] for row in masks]
    assert rows.go_on(sequences, [3, 3], tokens, there) is not None
    # The step was begun in vain: nobody has got these tokens, and others come.
    assert rows.go_on(sequences, [3, 3], tokens, there) is None
    others = [allowed(expected(sequence))[-1] for sequence in sequences]
    for sequence, token in zip(sequences, others, strict=True):
        sequence.token_ids.append(token)
    rows.follow(sequences, there)
    for sequence, row in zip(sequences, masks, strict=True):
        assert (row == expected(sequence)).all()


def test_what_is_too_much_for_the_library_waits_for_the_step_that_says_so(grammars: Grammars) -> None:
    sequences = sequences_of(grammars, [LIST, TEXT])
    rows = FormRows(sequences)
    masks, there = memory(2)
    rows.follow(sequences, there)
    fine = allowed(masks[1])[0]
    assert rows.go_on(sequences, [3, 3], [5000, fine], there) is None  # a token that the list cannot begin with
    sequences[1].token_ids.append(fine)
    sequences[0].token_ids.append(allowed(expected(sequences[0]))[0])
    rows.follow(sequences, there)
    for sequence, row in zip(sequences, masks, strict=True):
        assert (row == expected(sequence)).all()


def test_masks_of_free_texts_stay_where_they_are(grammars: Grammars) -> None:
    """In the midst of them no mask is made and no reply followed; where one of several ends, its mask alone."""
    draw_from = random.Random(3)
    sequences = sequences_of(grammars, [FREE, FREE, COUNTED, FREE])
    rows = FormRows(sequences)
    masks, there = memory(len(rows))
    rows.follow(sequences, there)
    seen = set()
    for step in range(60):
        starts, tokens = [len(sequence.token_ids) for sequence in sequences], []
        for i in range(len(sequences)):
            choices, place = allowed(masks[i]), rows._held[i].followed.place
            assert place is not None
            plain = [token for token in choices if place.plain[token]]
            begins = [each for each in choices if (place._texts.of(each) or b"").startswith(b'"')]
            may_end = place.room < 0 or step % 20 == 5 * i
            tokens.append(draw_from.choice(begins if begins and may_end else plain or choices))
        before, changed = masks.copy(), rows.go_on(sequences, starts, tokens, there)
        assert changed is not None
        seen.add((changed.start, changed.stop))
        assert (np.delete(masks, changed, axis=0) == np.delete(before, changed, axis=0)).all()
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.token_ids.append(token)
        assert (masks == [expected(sequence) for sequence in sequences]).all()
        rows.catch_up()
        if step == 40:
            followed = [each.followed for each in rows._held]
            rows.follow(sequences, there)
            assert all(each.followed in followed for each in rows._held), "nobody had to be followed anew"
    assert (0, 0) in seen
    assert (1, 2) in seen


def test_of_a_crowd_in_texts_that_count_some_catch_up_in_each_step(grammars: Grammars) -> None:
    sequences, draw_from = sequences_of(grammars, [LONG] * 64), random.Random(1)
    for sequence in sequences:
        sequence.token_ids += grammars._tokenizer.encode('["').ids[1:]
    rows = FormRows(sequences)
    masks, there = memory(len(rows))
    rows.follow(sequences, there)
    place = rows._held[0].followed.place
    assert place is not None
    plain = [token for token in allowed(masks[0]) if 0 < place.plain[token] < 4]
    most_behind = 0
    for step in range(70):
        tokens = draw_from.choices(plain, k=64)
        assert rows.go_on(sequences, [len(each.token_ids) for each in sequences], tokens, there) is not None
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.token_ids.append(token)
        rows.catch_up()
        behind = [len(each.sequence.token_ids) - each.num_followed for each in rows._held]
        most_behind = max(most_behind, *behind)
        if step % 10 == 9:
            assert (masks[step % 64] == expected(sequences[step % 64])).all()
    assert 20 < most_behind <= 32


@pytest.mark.parametrize("form", [TEXT, FREE, COUNTED])
def test_forks_and_rewinds_between_steps_are_seen_by_the_next_batch(grammars: Grammars, form: Form) -> None:
    source, draw_from = sequences_of(grammars, [form])[0], random.Random(5)
    sequences: list[Sequence] = [source]
    rows: Any = None
    for step in range(30):
        if step % 6 == 0:  # a new batch: one is forked, one is cut
            fork = Sequence(100 + step)
            fork.token_ids, fork.num_prompt_tokens = source.token_ids.copy(), len(PROMPT)
            fork.grammar = source.grammar
            sequences = [*sequences, fork]
            del source.token_ids[max(len(PROMPT), len(source.token_ids) - 2) :]
            rows = FormRows(sequences)
            masks, there = memory(len(rows))
            rows.follow(sequences, there)
        starts = [len(sequence.token_ids) for sequence in sequences]
        tokens = [draw_from.choice(allowed(masks[rows.row_of(sequence)])) for sequence in sequences]
        assert rows.go_on(sequences, starts, tokens, there) is not None
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.token_ids.append(token)
            assert (masks[rows.row_of(sequence)] == expected(sequence)).all()
