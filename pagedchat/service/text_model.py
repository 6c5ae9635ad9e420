"""What all chats with one model share: its tokenizer, its template, its sampling defaults. Knows no engine."""

from dataclasses import dataclass

import msgspec
from tokenizers import Tokenizer

from pagedchat.chat.conversation import Conversation
from pagedchat.chat.replies import Reply
from pagedchat.chat.template import ChatTemplate, render_raw
from pagedchat.chat.token_texts import token_bytes
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError
from pagedchat.service.commands import Generate
from pagedchat.service.reply_feed import Request


@dataclass(frozen=True, slots=True)
class TextModel:
    """The text side of a model."""

    tokenizer: Tokenizer | None
    """`None` refuses every prompt, as all of them are text."""
    template: ChatTemplate
    """How a conversation is written for the model."""
    defaults: SamplingParams
    """Sampling parameters where a session sets none."""

    def render(self, command: Generate) -> str:
        """The text that the model is to continue."""
        return render_raw(command.turns) if command.raw else self.template.render(command.turns)

    def params(self, command: Generate) -> SamplingParams:
        """The session's settings over the defaults, with the template's stop strings."""
        params = command.overrides.resolve(self.defaults)
        if command.raw:
            return params
        return msgspec.structs.replace(params, stop=[*params.stop, *self.template.stop_strings])

    def conversation(self, raw: bool) -> Conversation:
        """One for a new sequence.

        Raises:
            RequestError: there is no tokenizer.
        """
        if self.tokenizer is None:
            raise RequestError("This model was loaded without a tokenizer and takes no text.", "Load it with one.")
        return Conversation(self.tokenizer, add_bos=raw or self.template.kind == "plain")

    def strips_start(self, command: Generate) -> bool:
        """Whether a reply's text begins with its first word: a base model writes a space after a colon."""
        continues = bool(command.turns) and command.turns[-1].role == "assistant"
        return self.template.kind == "plain" and not command.raw and not continues

    def check_begun(self, command: Generate) -> None:
        """Whether the tokens with which a reply is to begin are this model's.

        Raises:
            RequestError: they stand for something else here.
        """
        if command.begun_text is None or self.tokenizer is None:
            return
        bytes_of = token_bytes(self.tokenizer)
        if b"".join(map(bytes_of, command.begun)) != command.begun_text:
            raise RequestError(
                "The tokens of this reply are another model's: nothing can be put in their place here.",
                "^G asks the prompt again.",
            )

    def decode(self, token_ids: list[int]) -> str:
        """What tokens say by themselves, without special ones."""
        text: str = "" if self.tokenizer is None else self.tokenizer.decode(token_ids, skip_special_tokens=True)
        return text

    def request(self, command: Generate, params: SamplingParams, sequence: Sequence, asked: float) -> Request:
        """The request for which `sequence` was just extended."""
        reply = Reply(sequence, self.tokenizer, params.stop, strip_start=self.strips_start(command))
        return Request(command.session_id, command.request_id, reply, asked)
