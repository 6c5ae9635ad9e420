"""Turns -> the text that a model was trained to continue. Knows roles and templates, no tokens.

A checkpoint may carry a jinja template of its own. A base model has none and gets a transcript::

    The system text, if there is one.

    User: What is a block?
    Assistant: A run of slots.
    User: And a slot?
    Assistant:
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pagedchat.chat.session import Turn
from pagedchat.errors import ModelError, RequestError

USER, ASSISTANT = "User:", "Assistant:"


class ChatTemplate:
    """How one model wants a chat written.

    Args:
        source: the checkpoint's jinja template; `None` gives the plain transcript.
        special_tokens: what the template may name, as `{"bos_token": "<s>"}`.

    Raises:
        ModelError: the template does not parse.
    """

    def __init__(self, source: str | None = None, special_tokens: Mapping[str, str] | None = None) -> None:
        self.kind: Literal["model", "plain"] = "plain" if source is None else "model"
        self.stop_strings: tuple[str, ...] = (f"\n{USER}", f"\n{ASSISTANT}") if source is None else ()
        """A base model goes on to write the user's next turn too; its reply ends there."""
        self._special_tokens = dict(special_tokens or {})
        self._jinja = None if source is None else _compile(source)

    def render(self, turns: Sequence[Turn], add_generation_prompt: bool = True) -> str:
        """The text of `turns`, ready for the next reply.

        When the last turn is an assistant's, the text ends inside it, so that the model continues it. Without
        `add_generation_prompt` every turn is closed.

        Raises:
            RequestError: the model's template refuses these turns.
        """
        if not (add_generation_prompt and turns and turns[-1].role == "assistant"):
            return self._render(turns, add_generation_prompt)
        # The last text goes in as it is: a template would trim and close it.
        prompt, text = self._render(turns[:-1], True), turns[-1].text
        return prompt + text if self._jinja else _spaced(prompt, text)

    def _render(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        if self._jinja is None:
            return _transcript(turns) + (ASSISTANT if add_generation_prompt else "")
        return self._render_model(self._jinja, turns, add_generation_prompt)

    def _render_model(self, jinja: Callable[..., str], turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        """Some templates refuse a system turn, or two turns of one role in a row, and some leave the system text
        out: those get the same text in user and assistant turns that take turns."""
        text, error = self._attempt(jinja, turns, add_generation_prompt)
        system = turns[0].text.strip() if turns and turns[0].role == "system" else ""
        if text is None or system not in text:
            folded, _ = self._attempt(jinja, _fold(turns), add_generation_prompt)
            text = folded if folded is not None else text
        if text is None:
            raise RequestError(
                f"The model's chat template refuses this conversation: {error}",
                "Use raw mode, or start a new chat.",
            )
        return text

    def _attempt(
        self, jinja: Callable[..., str], turns: Sequence[Turn], add_generation_prompt: bool
    ) -> tuple[str | None, str]:
        """The text, or `None` and what the template said."""
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        variables: dict[str, Any] = {"messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            return jinja(**self._special_tokens, **variables, tools=None, documents=None), ""
        except Exception as error:  # a template is a program from a model's author; anything may come out of it
            return None, str(error) or type(error).__name__


def render_raw(turns: Sequence[Turn]) -> str:
    """Text completion: the texts one after another, nothing between them."""
    return "".join(turn.text for turn in turns)


def _compile(source: str) -> Callable[..., str]:
    from jinja2 import TemplateError  # noqa: PLC0415 - the screen's process need not load it

    from pagedchat.chat.jinja import compile_template  # noqa: PLC0415

    try:
        return compile_template(source)
    except TemplateError as error:
        raise ModelError(
            f"The model's chat template does not parse: {error}",
            "Mend chat_template in the checkpoint's tokenizer_config.json, or take another checkpoint.",
        ) from error


def _transcript(turns: Sequence[Turn]) -> str:
    return "".join(_line(turn) for turn in turns)


def _line(turn: Turn) -> str:
    if turn.role == "system":
        return f"{turn.text.strip()}\n\n"
    return _spaced(USER if turn.role == "user" else ASSISTANT, turn.text) + "\n"


def _spaced(label: str, text: str) -> str:
    """A generated reply mostly brings its own space; a typed prompt does not."""
    return label + text if not text or text[0].isspace() else f"{label} {text}"


def _fold(turns: Sequence[Turn]) -> list[Turn]:
    """The same text in user and assistant turns that alternate; system text opens the user's turn after it."""
    folded: list[Turn] = []
    for turn in turns:
        role = "user" if turn.role == "system" else turn.role
        if folded and folded[-1].role == role:
            folded[-1] = Turn(role, f"{folded[-1].text}\n\n{turn.text}")
        else:
            folded.append(Turn(role, turn.text))
    return folded
