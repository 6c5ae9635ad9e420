"""Prompts of programs on their way to token ids: short ones at once, the others beside the engine's loop.

A conversation's template may take until its limit of time, a long text takes a second a million characters, and a
schema as long as it is large. So threads do these while the loop goes on with its steps, those with a form apart
from the others, and what comes of them arrives through the inbox. Knows no engine and no sequences.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from pagedchat.chat.template import ChatPrompt
from pagedchat.engine.output import Grammars
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import RequestError
from pagedchat.requests.prompts import PromptEncoder
from pagedchat.service.commands import AddRequest, Detokenize, Tokenize
from pagedchat.service.text_model import TextModel

_SHORT = 2_000
"""Characters or tokens that are encoded or decoded within a millisecond."""


@dataclass(eq=False, slots=True)
class PromptJob:
    """A command whose prompt is to be prepared."""

    command: AddRequest | Tokenize | Detokenize
    wanted: bool = True
    """False once it was aborted: then it need not be begun with."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What became of a job."""

    job: PromptJob
    token_ids: list[int]
    """Of the prompt; empty where text was wanted."""
    params: SamplingParams | None = None
    """Of a request, as the engine takes them."""
    text: str = ""
    error: BaseException | None = None
    """Why there is nothing of these."""


class PromptWorkshop:
    """Prepares prompts, as the library does.

    Args:
        text_model: tokenizer, template and default parameters.
        grammars: see `EngineCore`.
    """

    def __init__(self, text_model: TextModel, grammars: Grammars | None) -> None:
        self._encoder = PromptEncoder(text_model.tokenizer, text_model.template)
        self._defaults = text_model.defaults
        self._grammars = grammars

    def prepare(self, job: PromptJob) -> Prepared:
        """What a command asks, or why that cannot be."""
        try:
            return self._prepared(job)
        except BaseException as error:  # the loop tells whoever asked, or ends by it
            return Prepared(job, [], error=error)

    def takes_long(self, job: PromptJob) -> bool:
        """Whether others should not wait for it."""
        if has_form(job):
            return True
        match job.command:
            case AddRequest(_, str() as prompt) | Tokenize(_, str() as prompt):
                return len(prompt) > _SHORT
            case Detokenize(_, token_ids):
                return len(token_ids) > _SHORT
            case AddRequest(_, list()):
                return False
        return True

    def _prepared(self, job: PromptJob) -> Prepared:
        encoder = self._encoder
        match job.command:
            case Detokenize(_, token_ids):
                return Prepared(job, [], text=self._text_of(token_ids))
            case Tokenize(_, str() as prompt, add_special_tokens):
                return Prepared(job, encoder.encode_text(prompt, add_special_tokens=add_special_tokens))
            case Tokenize(_, ChatPrompt() as prompt):
                return Prepared(job, encoder.encode_chat(prompt))
            case AddRequest(_, prompt, params):
                return self._prepared_request(job, prompt, params or self._defaults)
        raise AssertionError(job.command)

    def _prepared_request(
        self, job: PromptJob, prompt: str | list[int] | ChatPrompt, params: SamplingParams
    ) -> Prepared:
        encoder = self._encoder
        match prompt:
            case ChatPrompt():
                token_ids, params = encoder.encode_chat(prompt), encoder.settled_for_chat(prompt, params)
            case str():
                token_ids = encoder.encode_text(prompt)
            case _:
                token_ids = prompt
        if params.structured_outputs is not None and self._grammars is not None:
            self._grammars.compile(params.structured_outputs)  # the engine then finds it compiled
        return Prepared(job, token_ids, encoder.settled(params))

    def _text_of(self, token_ids: list[int]) -> str:
        tokenizer = self._encoder.need_tokenizer()
        vocab_size = tokenizer.get_vocab_size()
        wrong = next((token_id for token_id in token_ids if not 0 <= token_id < vocab_size), None)
        if wrong is not None:
            raise RequestError(f"Token id {wrong} is outside the tokenizer's vocabulary of {vocab_size} tokens.")
        text: str = tokenizer.decode(token_ids, skip_special_tokens=False)
        return text


def has_form(job: PromptJob) -> bool:
    """Whether a reply is asked for that is held to a form, which may have to be compiled."""
    match job.command:
        case AddRequest(_, _, params):
            return params is not None and params.structured_outputs is not None
    return False


class Preparer(Protocol):
    """Prepares prompts."""

    def submit(self, job: PromptJob) -> Prepared | None:
        """What became of it; None where that comes later, in the inbox."""
        ...


class PrepareAtOnce:
    """Prepares every prompt while it is asked for.

    Args:
        workshop: does it.
    """

    def __init__(self, workshop: PromptWorkshop) -> None:
        self._workshop = workshop

    def submit(self, job: PromptJob) -> Prepared | None:
        """What became of it."""
        return self._workshop.prepare(job)


class PrepareAside:
    """Prepares what takes long in threads: one for what has a form, one for the rest.

    Args:
        workshop: does it.
        answer: called in the thread with what became of each job.
    """

    def __init__(self, workshop: PromptWorkshop, answer: Callable[[Prepared], object]) -> None:
        self._workshop = workshop
        self._answer = answer
        self._lanes: dict[bool, SimpleQueue[PromptJob]] = {}
        """By whether there is a form; each has a thread."""

    def submit(self, job: PromptJob) -> Prepared | None:
        """What became of a short one; None for the rest."""
        if not self._workshop.takes_long(job):
            return self._workshop.prepare(job)
        lane = has_form(job)
        if lane not in self._lanes:
            jobs = self._lanes[lane] = SimpleQueue()
            name = "forms" if lane else "prompts"
            threading.Thread(target=self._work, args=(jobs,), name=name, daemon=True).start()
        self._lanes[lane].put(job)
        return None

    def _work(self, jobs: "SimpleQueue[PromptJob]") -> None:
        while True:
            job = jobs.get()
            if job.wanted:
                self._answer(self._workshop.prepare(job))
