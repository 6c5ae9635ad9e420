"""What the offline API takes as a prompt, and its way to token ids. Knows tokenizers and templates, no engine."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict, final

from tokenizers import Tokenizer

from pagedchat.chat.conversation import Conversation
from pagedchat.chat.session import Role, Turn
from pagedchat.chat.template import ChatTemplate
from pagedchat.errors import InvalidValueError, RequestError


@final
class TextPrompt(TypedDict):
    """A text, to be tokenised with the special tokens that the tokenizer puts around every text."""

    prompt: str


@final
class TokensPrompt(TypedDict):
    """Tokens already; nothing is added."""

    prompt_token_ids: list[int]
    prompt: NotRequired[str]
    """The text they stand for, where it is known; outputs repeat it."""


class Message(TypedDict):
    """One turn of a conversation."""

    role: Role
    content: str


Prompt = str | TextPrompt | TokensPrompt


def prompt_text(prompt: Prompt) -> str | None:
    """The text of a prompt that was given as text."""
    if isinstance(prompt, str):
        return prompt
    if "prompt" in prompt:
        return prompt["prompt"]
    return None


class PromptEncoder:
    """Prompts -> token ids of one model.

    Args:
        tokenizer: `None` takes token ids only.
        template: how conversations are written.
        vocab_size: token ids are below it.
    """

    def __init__(self, tokenizer: Tokenizer | None, template: ChatTemplate, vocab_size: int) -> None:
        self.template = template
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt.

        Raises:
            InvalidValueError: a dict that is no prompt.
            RequestError: text without a tokenizer, or token ids outside the vocabulary.
        """
        if isinstance(prompt, str):
            return self._encode_text(prompt)
        if "prompt_token_ids" in prompt:
            return self._checked(prompt["prompt_token_ids"])
        if "prompt" in prompt:
            return self._encode_text(prompt["prompt"])
        raise InvalidValueError(
            f"A prompt has the keys {', '.join(prompt) or 'none'}.",
            'Give a string, {"prompt": text} or {"prompt_token_ids": ids}.',
        )

    def encoded(self, prompt: Prompt) -> TokensPrompt:
        """A prompt of any kind as token ids, with its text, where it has one.

        Raises:
            InvalidValueError, RequestError: as for `encode`.
        """
        tokens, text = TokensPrompt(prompt_token_ids=self.encode(prompt)), prompt_text(prompt)
        if text is not None:
            tokens["prompt"] = text
        return tokens

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation that awaits its next reply.

        Raises:
            RequestError: no tokenizer, or the template refuses the conversation.
        """
        text = self.template.render([Turn(message["role"], message["content"]) for message in messages])
        conversation = Conversation(self.need_tokenizer(), add_bos=self.template.kind == "plain")
        return conversation.plan(text, []).token_ids

    def need_tokenizer(self) -> Tokenizer:
        """The tokenizer, where there is no going on without one.

        Raises:
            RequestError: none was loaded.
        """
        if self._tokenizer is None:
            raise RequestError(
                "No tokenizer was loaded, so there is no text.",
                "Give prompts as prompt_token_ids and no stop strings, or leave out skip_tokenizer_init.",
            )
        return self._tokenizer

    def _encode_text(self, text: str) -> list[int]:
        try:
            token_ids: list[int] = self.need_tokenizer().encode(text).ids
        except (TypeError, UnicodeError) as error:
            raise RequestError("The prompt is not valid Unicode text.", f"The tokenizer said: {error}") from error
        return token_ids

    def _checked(self, token_ids: Sequence[int]) -> list[int]:
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < self._vocab_size:
            wrong = next(token for token in token_ids if not 0 <= token < self._vocab_size)
            raise RequestError(
                f"Token id {wrong} is outside the model's vocabulary of {self._vocab_size} tokens.",
                "Encode the prompt with this model's tokenizer.",
            )
        return list(token_ids)
