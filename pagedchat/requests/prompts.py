"""What the offline API takes as a prompt, and its way to token ids. Knows tokenizers and templates, no engine.

What is no prompt is refused here, in words; which tokens a model has, the engine knows.
"""

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict, final

import msgspec
from tokenizers import Tokenizer

from pagedchat.bounds import as_whole_numbers, shown
from pagedchat.chat.conversation import Conversation
from pagedchat.chat.template import ChatPrompt, ChatTemplate
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


Prompt = str | TextPrompt | TokensPrompt


_PROMPTS = 'Give a string, {"prompt": text} or {"prompt_token_ids": ids}, or a list of these.'


def prompt_text(prompt: Prompt) -> str | None:
    """The text of a prompt that was given as text."""
    text: object = prompt.get("prompt") if isinstance(prompt, dict) else prompt
    return text if isinstance(text, str) else None


def checked_prompt(prompt: Prompt) -> str | list[int]:
    """A prompt of any kind as its text, or as token ids.

    Raises:
        InvalidValueError: it is no prompt, or has no list of whole numbers where its token ids should be.
    """
    if isinstance(prompt, dict) and "prompt_token_ids" in prompt:
        return _token_ids(prompt["prompt_token_ids"])
    text = prompt_text(prompt)
    if text is not None:
        return text
    if isinstance(prompt, dict) and "prompt" not in prompt:
        keys: Iterable[object] = prompt
        raise InvalidValueError(f"A prompt has the keys {', '.join(map(str, keys)) or 'none'}.", _PROMPTS)
    raise InvalidValueError(f"A prompt is {shown(prompt)}.", _PROMPTS)


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
        checked = checked_prompt(prompt)
        return self.encode_text(checked) if isinstance(checked, str) else checked

    def encoded(self, prompt: Prompt) -> TokensPrompt:
        """A prompt of any kind as token ids, with its text, where it has one.

        Raises:
            InvalidValueError, RequestError: as for `encode`.
        """
        tokens, text = TokensPrompt(prompt_token_ids=self.encode(prompt)), prompt_text(prompt)
        if text is not None:
            tokens["prompt"] = text
        return tokens

    def encode_chat(self, chat: ChatPrompt) -> list[int]:
        """Token ids of a conversation.

        Raises:
            RequestError: no tokenizer, or the template refuses the conversation.
        """
        text = self.template.render_prompt(chat)
        is_plain = self.template.kind == "plain" and chat.chat_template is None
        conversation = Conversation(self.need_tokenizer(), add_bos=is_plain)
        return conversation.plan(text, []).token_ids

    def settled_for_chat(self, chat: ChatPrompt, params: SamplingParams) -> SamplingParams:
        """The same with what ends a reply in the template's way; still to be `settled`."""
        if chat.chat_template is not None:
            return params
        return msgspec.structs.replace(params, stop=[*params.stop, *self.template.stop_strings])

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

    def encode_text(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, with those that the tokenizer puts around every text.

        Raises:
            RequestError: no tokenizer, or something that is no text.
        """
        tokenizer = self.need_tokenizer()
        try:
            token_ids: list[int] = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeError) as error:
            raise RequestError("The prompt is not valid Unicode text.", f"The tokenizer said: {error}") from error
        return token_ids


def _token_ids(given: object) -> list[int]:
    token_ids = as_whole_numbers(given)
    if token_ids is None:
        raise InvalidValueError(
            f"prompt_token_ids is {shown(given)}.", "It must be a list of token ids, which are whole numbers."
        )
    return token_ids
