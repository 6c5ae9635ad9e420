"""Forms compiled by the library: what may come next, what is refused, and in which words."""

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tokenizers import Tokenizer

from pagedchat import bundled
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.runtime.structured import lexers as lexers_module
from pagedchat.runtime.structured import mask_jobs as jobs_module
from pagedchat.runtime.structured.grammar import Grammar, fill_masks, num_words
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.structured.params import StructuredOutputsParams as Form

pytest.importorskip("llguidance")
VOCAB_SIZE, EOS = 8192, 2
LINK = {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/link"}]}},
        "required": ["next"], "additionalProperties": False}  # fmt: skip
CHAIN = {"$defs": {"link": LINK}, "$ref": "#/$defs/link"}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, VOCAB_SIZE, [EOS])


def allowed(row: np.ndarray) -> list[int]:
    return np.nonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[:VOCAB_SIZE])[0].tolist()


def draw(grammars: Grammars, form: Form, draw_from: random.Random, most: int = 400) -> list[int]:
    """A reply that is nothing but allowed."""
    sequence, row = Sequence(1), np.zeros((1, num_words(VOCAB_SIZE)), np.int32)
    grammar = grammars.compile(form)
    while not sequence.token_ids or sequence.token_ids[-1] != EOS:
        fill_masks(row, [(grammar, sequence)])
        choices = allowed(row)
        sequence.token_ids.append(EOS if EOS in choices else draw_from.choice(choices))
        assert len(sequence.token_ids) < most
    return sequence.token_ids[:-1]


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        (Form(choice=["yes", "no", 'a "quoted" ü']), lambda text: text in {"yes", "no", 'a "quoted" ü'}),
        (Form(regex="[a-f]{3}[0-9]"), lambda text: len(text) == 4 and text[:3].isalpha() and text[3].isdigit()),
        (Form(grammar='start: "a" start "b" | "c"'), lambda text: text.count("a") == text.count("b")),
        (Form(grammar='root ::= "yes" | "no"'), lambda text: text in {"yes", "no"}),
        (Form(json=CHAIN), lambda text: set(json.loads(text)) == {"next"}),
        (Form(json={"type": "string", "format": "date-time"}), lambda text: "T" in text.upper()),
        (Form(json={"type": "number"}), lambda text: isinstance(json.loads(text), int | float)),
        (Form(json={"enum": [1, "two", None]}), lambda text: json.loads(text) in [1, "two", None]),
    ],
    ids=["choice", "regex", "lark", "gbnf", "recursion", "time", "number", "json"],
)  # fmt: skip
def test_every_reply_has_the_form(grammars: Grammars, tokenizer: Tokenizer, form: Form, fits) -> None:
    for seed in range(5):
        text = tokenizer.decode(draw(grammars, form, random.Random(seed)))
        assert fits(text), text


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (Form(json={"type": "nonsense"}), "Invalid type: nonsense"),
        (Form(json={"type": "integer", "minimum": 5, "maximum": 2}), "minimum"),
        (Form(json={"not": {"type": "string"}}), "not"),
        (Form(json={"$ref": "#/nope"}), "/nope"),
        (Form(json={"enum": []}), "nsatisfiable"),
        (Form(regex="("), "unclosed group"),
        (Form(grammar="start: nobody"), "nobody"),
        (Form(grammar="start: ("), "structured_outputs.grammar"),
        (Form(grammar='root ::= "a" |' + "(" * 5000), "structured_outputs.grammar"),
        (Form(regex=r"[^\s\S]"), "nothing satisfies it"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(grammars: Grammars, form: Form, words: str) -> None:
    with pytest.raises(InvalidValueError, match=r"structured_outputs\.\w+ cannot be held to") as refused:
        grammars.compile(form)
    assert words in str(refused.value)
    assert "\n" not in refused.value.message


ENDLESS = ("start: /y+/ /y+/", "start: /y+/ /yz/", 'start: "a" /y+/ /y+/', 'start: "y" start')
"""Of which all bytes are known from some point on, without an end: nothing may follow them there."""


@pytest.mark.parametrize("text", [*ENDLESS, *(f'%llguidance {{"no_forcing": false}}\n{each}' for each in ENDLESS)])
def test_a_grammar_without_an_end_holds_nobody(grammars: Grammars, tokenizer: Tokenizer, text: str) -> None:
    replies: list[str] = []
    thread = threading.Thread(target=lambda: replies.append(written(grammars, tokenizer, text)), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it goes on for ever"
    assert set(replies[0]) == set("ay" if '"a"' in text else "y")


def written(grammars: Grammars, tokenizer: Tokenizer, text: str) -> str:
    """Thirty tokens of a grammar, as one who draws would have them."""
    sequence, row = Sequence(1), np.zeros((1, num_words(VOCAB_SIZE)), np.int32)
    grammar, draw_from = grammars.compile(Form(grammar=text)), random.Random(1)
    for _ in range(30):
        fill_masks(row, [(grammar, sequence)])
        sequence.token_ids.append(draw_from.choice(allowed(row)))
    return tokenizer.decode(sequence.token_ids)


def test_nobody_waits_for_a_form_that_is_not_his(tokenizer: Tokenizer) -> None:
    grammars, begun, go_on = Grammars(tokenizer, VOCAB_SIZE, [EOS]), threading.Event(), threading.Event()
    compiled = grammars._compiled

    def slowly(form):
        if form.text == "slow":
            begun.set()
            assert go_on.wait(20)
        return compiled(form)

    grammars._compiled = slowly
    with ThreadPoolExecutor(2) as others:
        slow = [others.submit(grammars.compile, Form(regex="slow")) for _ in range(2)]
        assert begun.wait(20)
        grammars.compile(Form(regex="quick"))
        assert not any(each.done() for each in slow)
        go_on.set()
        assert slow[0].result() is slow[1].result()


def test_what_was_refused_is_refused_again(grammars: Grammars) -> None:
    for _ in range(2):
        with pytest.raises(InvalidValueError):
            grammars.compile(Form(regex="("))
    assert Form(regex="(").form not in grammars._kept


def test_a_form_is_compiled_once(grammars: Grammars) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    first = grammars.compile(Form(json=schema))
    assert grammars.compile(Form(json=json.dumps(schema))) is first
    assert grammars.compile(Form(json=schema | {"title": "T"})) is not first


def test_models_without_a_tokenizer_or_an_end_are_told(tokenizer: Tokenizer) -> None:
    for model, words in (
        (Grammars(None, 8, [1]), "tokenizer"),
        (Grammars(tokenizer, VOCAB_SIZE, []), "ends a reply"),
    ):
        with pytest.raises(RequestError, match=words):
            model.compile(Form(regex="a"))


def test_replies_that_are_forked_cut_and_written_anew_are_followed(grammars: Grammars) -> None:
    """What may come next is what a matcher says that has seen nothing but this reply."""
    form, draw_from = Form(json={"type": "array", "items": {"type": "integer"}, "maxItems": 30}), random.Random(3)
    grammar = grammars.compile(form)
    row, expected = np.zeros((2, 1, num_words(VOCAB_SIZE)), np.int32)
    sequence = Sequence(1)
    sequence.token_ids, sequence.num_prompt_tokens = [7, 7, 7], 3
    cuts = 0
    for step in range(60):
        fill_masks(row, [(grammar, sequence)])
        fill_masks(expected, [(Grammar(grammar._matcher, VOCAB_SIZE), sequence)])
        assert (row == expected).all(), step
        choices = [token for token in allowed(row) if token != EOS]
        if not choices or draw_from.random() < 0.2:
            del sequence.token_ids[draw_from.randrange(3, len(sequence.token_ids) + 1) :]
            cuts += 1
            choices = None
        if choices:
            sequence.token_ids.append(draw_from.choice(choices))
    assert cuts > 3


def test_masks_that_take_long_are_made_by_threads_and_are_the_same(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = grammars.compile(Form(json={"type": "array", "items": {"type": "string"}}))
    sequences = [Sequence(i) for i in range(20)]
    for i, sequence in enumerate(sequences):
        sequence.token_ids = grammars._tokenizer.encode(("[", '["a', '["a"', '["a", ')[i % 4]).ids[1:]
    many, alone = np.zeros((2, 20, num_words(VOCAB_SIZE)), np.int32)
    monkeypatch.setattr(jobs_module, "_ALONE_SECONDS", 0.0)
    monkeypatch.setattr(lexers_module, "_LONG_STEPS", 0)
    for module in (jobs_module, lexers_module):
        monkeypatch.setattr(module, "MOST_LEXERS", 2)
    threads, asked = jobs_module._threads, []
    monkeypatch.setattr(jobs_module, "_threads", lambda: asked.append(1) or threads())
    fill_masks(many, [(grammar, sequence) for sequence in sequences])
    assert asked
    for mask, sequence in zip(alone, sequences, strict=True):
        fill_masks(mask[None], [(grammar, sequence)])
    assert (many == alone).all()
    assert len({mask.tobytes() for mask in many}) > 1
