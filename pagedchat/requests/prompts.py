"""What the offline API takes as a prompt, and its way to token ids. Knows tokenizers and templates, no engine.

What is no prompt is refused here, in words; which tokens a model has, the engine knows.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NotRequired, TypedDict, final

import msgspec
from tokenizers import Tokenizer

from pagedchat.bounds import as_whole_numbers, shown
from pagedchat.chat.conversation import Conversation
from pagedchat.chat.template import ChatTemplate
from pagedchat.chat.turns import Role, Turn
from pagedchat.engine.sampling_params import SamplingParams
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
    content: str | list[dict[str, str]]
    """A text, or its parts, each `{"type": "text", "text": str}`."""


Prompt = str | TextPrompt | TokensPrompt


_PROMPTS = 'Give a string, {"prompt": text} or {"prompt_token_ids": ids}, or a list of these.'


def prompt_text(prompt: Prompt) -> str | None:
    """The text of a prompt that was given as text."""
    text: object = prompt.get("prompt") if isinstance(prompt, dict) else prompt
    return text if isinstance(text, str) else None


def list_of_prompts(prompts: Prompt | Iterable[Prompt]) -> list[Prompt]:
    """One prompt by itself, or all of a list, a tuple, an array or whatever else has several.

    Raises:
        InvalidValueError: it is neither.
    """
    given: Any = prompts
    if isinstance(prompts, str | dict):
        return [given]
    try:
        several = None if isinstance(given, bytes | bytearray) else iter(given)
    except TypeError:  # of an array without dimensions, too, which has an `__iter__`
        several = None
    if several is None:
        raise InvalidValueError(f"prompts is {shown(given)}.", _PROMPTS)
    return list(several)


def _text_of_parts(content: object) -> object:
    """OpenAI's way to give a text in parts, as a text; anything else as it is."""
    if not isinstance(content, list) or not content:
        return content
    parts = [
        part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
    ]
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if len(texts) == len(parts) else content


class PromptEncoder:
    """Prompts -> token ids of one model.

    Args:
        tokenizer: `None` takes token ids only.
        template: how conversations are written.
    """

    def __init__(self, tokenizer: Tokenizer | None, template: ChatTemplate) -> None:
        self.template = template
        self._tokenizer = tokenizer

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt.

        Raises:
            InvalidValueError: it is no prompt, or has no list of whole numbers where its token ids should be.
            RequestError: text without a tokenizer.
        """
        if isinstance(prompt, dict) and "prompt_token_ids" in prompt:
            return _token_ids(prompt["prompt_token_ids"])
        text = prompt_text(prompt)
        if text is not None:
            return self._encode_text(text)
        if isinstance(prompt, dict) and "prompt" not in prompt:
            keys: Iterable[object] = prompt
            raise InvalidValueError(f"A prompt has the keys {', '.join(map(str, keys)) or 'none'}.", _PROMPTS)
        raise InvalidValueError(f"A prompt is {shown(prompt)}.", _PROMPTS)

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
            InvalidValueError: something that is no list of messages.
            RequestError: no tokenizer, or the template refuses the conversation.
        """
        text = self.template.render(_turns(messages))
        conversation = Conversation(self.need_tokenizer(), add_bos=self.template.kind == "plain")
        return conversation.plan(text, []).token_ids

    def settled(self, params: SamplingParams) -> SamplingParams:
        """The same, as the engine takes them.

        Raises:
            RequestError: there are stop strings or bad words, and no tokenizer.
        """
        if params.stop:
            self.need_tokenizer()
        return self._with_bad_words(params)

    def _with_bad_words(self, params: SamplingParams) -> SamplingParams:
        """With the tokens of its bad words, each by itself and behind a space, where that is as long and
        begins with another token."""
        if not params.bad_words:
            return params
        tokenizer = self.need_tokenizer()
        words: list[list[int]] = []
        for word in params.bad_words:
            alone, inside = (
                tokenizer.encode(text, add_special_tokens=False).ids
                for text in (word.lstrip(), f" {word.lstrip()}")
            )
            words.append(alone)
            if inside[:1] != alone[:1] and len(inside) == len(alone):
                words.append(inside)
        return msgspec.structs.replace(params, bad_words_ids=[*params.bad_words_ids, *filter(None, words)])

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


def conversations_of(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[Sequence[Message]]:
    """One conversation by itself, or all of a list of them."""
    given: Any = messages
    is_list = isinstance(given, list | tuple) and len(given) > 0
    return list(given) if is_list and all(isinstance(each, list | tuple) for each in given) else [given]


def _token_ids(given: object) -> list[int]:
    token_ids = as_whole_numbers(given)
    if token_ids is None:
        raise InvalidValueError(
            f"prompt_token_ids is {shown(given)}.", "It must be a list of token ids, which are whole numbers."
        )
    return token_ids


def _turns(messages: Sequence[Message]) -> list[Turn]:
    hint = 'Give a list of messages, each {"role": name, "content": text}.'
    if not isinstance(messages, list | tuple) or not messages:
        raise InvalidValueError(f"messages is {shown(messages)}.", hint)
    turns = []
    for message in messages:
        given: object = message
        role, content = (given.get("role"), given.get("content")) if isinstance(given, dict) else (None, None)
        content = _text_of_parts(content)
        if not isinstance(role, str) or not isinstance(content, str):
            raise InvalidValueError(f"A message is {shown(given)}.", hint)
        turns.append(Turn(role, content))  # type: ignore[arg-type]  # which roles there are, the template knows
    return turns
