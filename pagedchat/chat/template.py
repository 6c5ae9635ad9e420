"""Turns -> the text that a model was trained to continue. Knows roles and templates, no tokens.

A checkpoint may carry a jinja template of its own. A base model has none and gets a transcript::

    The system text, if there is one.

    User: What is a block?
    Assistant: A run of slots.
    User: And a slot?
    Assistant:
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from pagedchat.bounds import shown
from pagedchat.chat.model_template import TemplateJob, run_template
from pagedchat.chat.turns import Role, Turn
from pagedchat.errors import RequestError

USER, ASSISTANT = "User:", "Assistant:"


RunTemplate = Callable[[TemplateJob], str]
"""Runs a template that came with a checkpoint; raises `RequestError` where that gives no text."""


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of a program, as the template is to write it; JSON throughout."""

    messages: list[dict[str, Any]]
    """Each with `role` and `content`, and whatever else a template may know."""
    tools: list[dict[str, Any]] | None = None
    """Functions that the model may ask for, as JSON schemas."""
    chat_template_kwargs: dict[str, Any] = {}
    """What else the template may name."""
    add_generation_prompt: bool = True
    """The text ends where the next reply begins; otherwise every turn is closed and nothing more."""
    continue_final_message: bool = False
    """The text ends inside the last message, which the reply continues."""
    chat_template: str | None = None
    """Takes the place of the model's own."""


class ChatTemplate:
    """How one model wants a chat written.

    Args:
        source: the checkpoint's jinja template; `None` gives the plain transcript.
        special_tokens: what the template may name, as `{"bos_token": "<s>"}`.
        run: runs `source`. In this process by default, where it may take as long as it likes: an engine has a
            `TemplateProcess` for it.
    """

    def __init__(
        self,
        source: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
        run: RunTemplate = run_template,
    ) -> None:
        self.kind: Literal["model", "plain"] = "plain" if source is None else "model"
        self.stop_strings: tuple[str, ...] = (f"\n{USER}", f"\n{ASSISTANT}") if source is None else ()
        """A base model goes on to write the user's next turn too; its reply ends there."""
        self._source = source
        self._special_tokens = dict(special_tokens or {})
        self._run = run

    def render(self, turns: Sequence[Turn], add_generation_prompt: bool = True) -> str:
        """The text of `turns`, ready for the next reply.

        When the last turn is an assistant's, the text ends inside it, so that the model continues it. Without
        `add_generation_prompt` every turn is closed.

        Raises:
            RequestError: the model's template does not parse, refuses these turns, or does not end.
        """
        if not (add_generation_prompt and turns and turns[-1].role == "assistant"):
            return self._render(turns, add_generation_prompt)
        # The last text goes in as it is: a template would trim and close it.
        prompt, text = self._render(turns[:-1], True), turns[-1].text
        return _spaced(prompt, text) if self._source is None else prompt + text

    def render_prompt(self, prompt: ChatPrompt) -> str:
        """The text of a program's conversation.

        Raises:
            RequestError: as for `render`; or there are tools, or roles, that a plain transcript has no place for.
        """
        messages, opens_reply = prompt.messages, prompt.add_generation_prompt
        text = ""
        if prompt.continue_final_message:
            messages, text, opens_reply = messages[:-1], messages[-1]["content"], True
        source = prompt.chat_template or self._source
        if source is None:
            return _spaced(_plain(messages, prompt.tools) + (ASSISTANT if opens_reply else ""), text)
        kwargs = prompt.chat_template_kwargs
        job = TemplateJob(source, self._special_tokens, messages, opens_reply, prompt.tools, kwargs)
        return self._run(job) + text

    def _render(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        if self._source is None:
            return _transcript(turns) + (ASSISTANT if add_generation_prompt else "")
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        return self._run(TemplateJob(self._source, self._special_tokens, messages, add_generation_prompt))


def _plain(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    """A transcript, which knows nothing but turns of text."""
    if tools:
        raise RequestError(
            "This model has no chat template, so there is no telling it of tools.", "Leave tools out."
        )
    for message in messages:
        if message["role"] not in get_args(Role):
            raise RequestError(
                f"This model has no chat template that would know the role {shown(message['role'])}.",
                f"There are {', '.join(get_args(Role))}.",
            )
    return _transcript([Turn(message["role"], message["content"]) for message in messages])


def render_raw(turns: Sequence[Turn]) -> str:
    """Text completion: the texts one after another, nothing between them."""
    return "".join(turn.text for turn in turns)


def _transcript(turns: Sequence[Turn]) -> str:
    return "".join(_line(turn) for turn in turns)


def _line(turn: Turn) -> str:
    if turn.role == "system":
        return f"{turn.text.strip()}\n\n"
    return _spaced(USER if turn.role == "user" else ASSISTANT, turn.text) + "\n"


def _spaced(label: str, text: str) -> str:
    """A generated reply mostly brings its own space; a typed prompt does not."""
    return label + text if not text or text[0].isspace() else f"{label} {text}"
