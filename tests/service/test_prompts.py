"""Which prompts are prepared at once and which beside the loop, and what becomes of them."""

import queue
import threading
from typing import Any

import pytest

from pagedchat.chat.template import ChatPrompt, ChatTemplate
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.service import commands as cmd
from pagedchat.service.prompts import PrepareAside, Prepared, PromptJob, PromptWorkshop
from pagedchat.service.text_model import TextModel
from pagedchat.structured.params import StructuredOutputsParams
from tests.fakes import CHAT_TEMPLATE, byte_tokenizer

TOKENIZER = byte_tokenizer(add_bos=True)
CHAT = ChatPrompt(messages=[{"role": "user", "content": "Hi"}])
DEFAULTS = SamplingParams(temperature=0.5)
FORM = StructuredOutputsParams(regex="a")


class Grammars:
    """Remembers which forms were compiled."""

    def __init__(self) -> None:
        self.compiled: list[StructuredOutputsParams] = []

    def compile(self, wanted: StructuredOutputsParams) -> object:
        if wanted.regex == "(":
            raise InvalidValueError("It is no form.")
        self.compiled.append(wanted)
        return object()


def workshop(
    template: str | None = CHAT_TEMPLATE, grammars: Any = None, tokenizer: Any = TOKENIZER
) -> PromptWorkshop:
    return PromptWorkshop(TextModel(tokenizer, ChatTemplate(template), DEFAULTS), grammars)


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text).ids


@pytest.mark.parametrize(
    ("command", "token_ids"),
    [
        (cmd.AddRequest(1, "ab"), ids("ab")),
        (cmd.AddRequest(1, [5, 6]), [5, 6]),
        (cmd.AddRequest(1, CHAT), ids("<|user|>Hi</s><|assistant|>")[1:]),
        (cmd.Tokenize(1, "ab"), ids("ab")),
        (cmd.Tokenize(1, "ab", add_special_tokens=False), ids("ab")[1:]),
        (cmd.Tokenize(1, CHAT), ids("<|user|>Hi</s><|assistant|>")[1:]),
    ],
)
def test_prompts_of_every_kind_become_tokens(command: Any, token_ids: list[int]) -> None:
    prepared = workshop().prepare(PromptJob(command))
    assert (prepared.token_ids, prepared.error) == (token_ids, None)
    assert prepared.params == (DEFAULTS if isinstance(command, cmd.AddRequest) else None)


def test_a_transcripts_stop_strings_end_a_reply_beside_those_that_were_asked_for() -> None:
    prepared = workshop(None).prepare(PromptJob(cmd.AddRequest(1, CHAT, SamplingParams(stop=["x"]))))
    assert prepared.params is not None
    assert prepared.params.stop == ["x", "\nUser:", "\nAssistant:"]
    assert prepared.token_ids == ids("User: Hi\nAssistant:")


def test_a_form_is_compiled_before_the_engine_asks_for_it() -> None:
    grammars = Grammars()
    job = PromptJob(cmd.AddRequest(1, [5], SamplingParams(structured_outputs=FORM)))
    assert workshop(grammars=grammars).prepare(job).error is None
    assert grammars.compiled == [FORM]
    bad = PromptJob(cmd.AddRequest(1, [5], SamplingParams(structured_outputs=StructuredOutputsParams(regex="("))))
    assert str(workshop(grammars=grammars).prepare(bad).error) == "It is no form."


@pytest.mark.parametrize("command", [cmd.AddRequest(1, "a"), cmd.Tokenize(1, CHAT), cmd.Detokenize(1, [5])])
def test_without_a_tokenizer_there_is_no_text(command: Any) -> None:
    error = workshop(tokenizer=None).prepare(PromptJob(command)).error
    assert isinstance(error, RequestError)
    assert error.message.startswith("No tokenizer was loaded")


LONG = "x" * 5000
TAKES_LONG = [
    (cmd.AddRequest(1, "a"), False), (cmd.AddRequest(1, LONG), True), (cmd.AddRequest(1, [5] * 9000), False),
    (cmd.AddRequest(1, CHAT), True), (cmd.AddRequest(1, [5], SamplingParams(structured_outputs=FORM)), True),
    (cmd.Tokenize(1, "a"), False), (cmd.Tokenize(1, LONG), True), (cmd.Tokenize(1, CHAT), True),
    (cmd.Detokenize(1, [5]), False), (cmd.Detokenize(1, [5] * 9000), True),
]  # fmt: skip


@pytest.mark.parametrize(("command", "takes_long"), TAKES_LONG)
def test_what_takes_long_is_done_aside(command: Any, takes_long: bool) -> None:
    answers: queue.SimpleQueue[Prepared] = queue.SimpleQueue()
    grammars = Grammars()
    aside = PrepareAside(workshop(grammars=grammars), answers.put)
    job = PromptJob(command)
    prepared = aside.submit(job)
    assert (prepared is None) == takes_long
    answer = prepared or answers.get(timeout=60)
    assert answer.job is job
    assert answer.error is None


def test_what_is_not_wanted_any_more_is_not_begun_with() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Gated(PromptWorkshop):
        def prepare(self, job: PromptJob) -> Prepared:
            begun.set()
            assert go_on.wait(60)
            return Prepared(job, [job.command.request_id])

    answers: queue.SimpleQueue[Prepared] = queue.SimpleQueue()
    aside = PrepareAside(Gated(TextModel(TOKENIZER, ChatTemplate(), DEFAULTS), None), answers.put)
    jobs = [PromptJob(cmd.AddRequest(number, LONG)) for number in range(3)]
    for job in jobs:
        assert aside.submit(job) is None
    assert begun.wait(60)
    jobs[1].wanted = False
    go_on.set()
    assert [answers.get(timeout=60).token_ids for _ in range(2)] == [[0], [2]]
