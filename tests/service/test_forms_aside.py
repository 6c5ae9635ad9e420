"""Prompts beside the loop: a form that takes long to compile holds nobody else's."""

import threading
from queue import Queue

from pagedchat.chat.template import ChatTemplate
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import InvalidValueError
from pagedchat.service.commands import AddRequest
from pagedchat.service.prompts import PrepareAside, PromptJob, PromptWorkshop
from pagedchat.service.text_model import TextModel
from pagedchat.structured.params import StructuredOutputsParams
from tests.fakes import byte_tokenizer

LONG = "x" * 3000


class SlowGrammars:
    """Compiles nothing until it is told to."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def compile(self, wanted: StructuredOutputsParams) -> object:
        self.begun.set()
        assert self.go_on.wait(20)
        if wanted.regex == "(":
            raise InvalidValueError("structured_outputs.regex cannot be held to: unclosed group.")
        return object()


def job(prompt: str, form: str | None = None) -> PromptJob:
    asked = StructuredOutputsParams(regex=form) if form else None
    return PromptJob(AddRequest(1, prompt, SamplingParams(structured_outputs=asked)))


def workshop(grammars: SlowGrammars) -> PromptWorkshop:
    return PromptWorkshop(TextModel(byte_tokenizer(), ChatTemplate(None), SamplingParams()), grammars)


def test_a_form_that_takes_long_holds_no_other_prompt() -> None:
    grammars, answers = SlowGrammars(), Queue()
    aside = PrepareAside(workshop(grammars), answers.put)
    formed = job("a", "b+")
    assert aside.submit(formed) is None
    assert grammars.begun.wait(20)
    assert aside.submit(job("short")).token_ids
    long = job(LONG)
    assert aside.submit(long) is None
    assert answers.get(timeout=20).job is long
    assert answers.empty()
    grammars.go_on.set()
    prepared = answers.get(timeout=20)
    assert (prepared.job, prepared.error) == (formed, None)


def test_a_form_that_cannot_be_is_told_with_its_request() -> None:
    grammars, answers = SlowGrammars(), Queue()
    grammars.go_on.set()
    aside = PrepareAside(workshop(grammars), answers.put)
    aside.submit(job("a", "("))
    assert "unclosed group" in str(answers.get(timeout=20).error)


def test_what_is_not_wanted_any_more_is_not_begun_with() -> None:
    grammars, answers = SlowGrammars(), Queue()
    aside = PrepareAside(workshop(grammars), answers.put)
    first, second, third = job("a", "b"), job("a", "c"), job("a", "d")
    for each in (first, second, third):
        aside.submit(each)
    second.wanted = False
    grammars.go_on.set()
    assert [answers.get(timeout=20).job for _ in range(2)] == [first, third]
