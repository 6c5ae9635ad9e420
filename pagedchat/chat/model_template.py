"""A checkpoint's own chat template, run. It is a program by whoever made the checkpoint: it may refuse, fail, fill
the memory or never end.

So an engine has it run in a process that may be killed (`template_process.py`). Knows jinja and messages; no model,
no tokens and no processes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pagedchat.errors import RequestError, first_line

MAX_SOURCE = 1 << 20
"""Characters of a template; the longest that are in use have some 60,000."""
_FREE_CHARACTERS = 1 << 18
_REPEATS = 4
_MAX_SAID = 500
WITHOUT_IT = "Use raw mode (--raw), or give the checkpoint another chat template."
"""What there is to do where a template is of no use."""


@dataclass(frozen=True, slots=True)
class TemplateJob:
    """A template and what it is to write."""

    source: str
    """In jinja's language."""
    special_tokens: dict[str, str]
    """What the template may name, as `{"bos_token": "<s>"}`."""
    messages: list[dict[str, Any]]
    """Each with `role` and `content`, and whatever else a template may know, such as `tool_calls`."""
    add_generation_prompt: bool
    """Whether the text is to end where the next reply begins."""
    tools: list[dict[str, Any]] | None = None
    """Functions that the model may ask for, as JSON schemas."""
    variables: dict[str, Any] = field(default_factory=dict)
    """What else the template may name, as `{"enable_thinking": False}`."""

    @property
    def max_characters(self) -> int:
        """Length of the longest text that is taken: tokenising one without a bound would stop every chat."""
        told = [{**message, "role": ""} for message in self.messages]
        return _FREE_CHARACTERS + _REPEATS * _num_characters([told, self.tools, self.variables])

    @property
    def may_be_folded(self) -> bool:
        """Whether there is nothing but turns of text: what a tool was asked, or said, has a place of its own."""
        return all(
            message["role"] in _TURNS and isinstance(message["content"], str) and len(message) == 2
            for message in self.messages
        )


_TURNS = ("system", "user", "assistant")


def _num_characters(value: Any) -> int:
    """Of all texts inside, however deep."""
    if isinstance(value, dict):
        return sum(map(_num_characters, value.values()))
    if isinstance(value, list):
        return sum(map(_num_characters, value))
    return len(value) if isinstance(value, str) else 0


def run_template(job: TemplateJob) -> str:
    """The text that a template makes of messages, in this process and for as long as it takes.

    Some templates refuse a system turn, or two turns of one role in a row, and some leave the system text out:
    those get the same text in user and assistant turns that take turns.

    Raises:
        RequestError: the template is none, refuses these messages, fails, or writes without end.
    """
    render = _compile(job.source)
    text, error = _attempt(render, job, job.messages)
    if job.may_be_folded:
        first = job.messages[0] if job.messages else {"role": "", "content": ""}
        system = first["content"].strip() if first["role"] == "system" else ""
        if text is None or system not in text:
            folded, _ = _attempt(render, job, _fold(job.messages))
            text = folded if folded is not None else text
    if text is None:
        raise RequestError(
            f"The model's chat template refuses this conversation: {error}.", "Use raw mode, or start a new chat."
        )
    if len(text) > job.max_characters:
        raise RequestError(
            f"The model's chat template makes {len(text):,} characters of this conversation; "
            f"{job.max_characters:,} are the most that are taken.",
            WITHOUT_IT,
        )
    return text


@lru_cache(maxsize=1)
def _compile(source: str) -> Callable[..., str]:
    from pagedchat.chat.jinja import compile_template  # noqa: PLC0415 - whoever only names this module needs no jinja

    try:
        return compile_template(source)
    except MemoryError:
        raise too_large() from None
    except Exception as error:  # jinja's own for what does not parse, Python's for what is nested too deeply
        raise RequestError(f"The model's chat template does not parse: {_said(error)}.", WITHOUT_IT) from error


def _attempt(
    render: Callable[..., str], job: TemplateJob, messages: list[dict[str, Any]]
) -> tuple[str | None, str]:
    """The text, or `None` and what the template said."""
    variables: dict[str, Any] = {"documents": None, **job.special_tokens, **job.variables}
    variables |= {"messages": messages, "add_generation_prompt": job.add_generation_prompt, "tools": job.tools}
    try:
        return render(**variables), ""
    except MemoryError:
        raise too_large() from None
    except Exception as error:  # anything may come out of it
        return None, _said(error)


def _said(error: Exception) -> str:
    """What is told of it: a template may raise a book."""
    return first_line(error)[:_MAX_SAID]


def too_large() -> RequestError:
    """What is said of a template for which the memory does not do."""
    return RequestError("The model's chat template takes more memory than it may.", WITHOUT_IT)


def _fold(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """The same text in user and assistant turns that alternate; system text opens the user's turn after it."""
    folded: list[dict[str, str]] = []
    for message in messages:
        role = "user" if message["role"] == "system" else message["role"]
        if folded and folded[-1]["role"] == role:
            folded[-1] = {"role": role, "content": f"{folded[-1]['content']}\n\n{message['content']}"}
        else:
            folded.append({"role": role, "content": message["content"]})
    return folded
