"""Turns -> the text that a model was trained to continue. Knows roles and templates, no tokens.

A checkpoint may carry a jinja template of its own. A base model has none and gets a transcript::

    The system text, if there is one.

    User: What is a block?
    Assistant: A run of slots.
    User: And a slot?
    Assistant:
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pagedchat.chat.model_template import TemplateJob, run_template
from pagedchat.chat.turns import Turn

USER, ASSISTANT = "User:", "Assistant:"


RunTemplate = Callable[[TemplateJob], str]
"""Runs a template that came with a checkpoint; raises `RequestError` where that gives no text."""


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

    def _render(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        if self._source is None:
            return _transcript(turns) + (ASSISTANT if add_generation_prompt else "")
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        return self._run(TemplateJob(self._source, self._special_tokens, messages, add_generation_prompt))


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
