"""What a sequence holds, as text, and what of it the next prompt can keep. Knows tokens and texts, no engine.

::

    text   <|user|>Hi<|assistant|>Hello!</s><|user|>And you?<|assistant|>Fine.</s>
    marks                         ^     ^   ^                            ^    ^   ^

Encoding a whole conversation again would not give back the tokens that the model generated for it: one text has
many encodings. So the text is remembered with *marks*, places where text and tokens are known to agree, and a new
prompt is encoded only from the last mark up to which it has the same text. Going on, asking again, editing an
earlier turn and starting over after a restart of the engine are all this one comparison.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer

from pagedchat.chat.detokenizer import decode_after
from pagedchat.errors import RequestError


class Mark(NamedTuple):
    """`text[:text_length]` is what the first `num_tokens` tokens say."""

    text_length: int
    num_tokens: int


class Prompt(NamedTuple):
    """How a sequence is brought to a new text."""

    text: str
    num_kept: int
    """Tokens to keep; the rest of the sequence is rewound."""
    token_ids: list[int]
    """Tokens to extend it by."""
    num_begun: int = 0
    """Tokens at the end of all that are not of the text: the reply's first ones."""

    @property
    def num_tokens(self) -> int:
        """Of the text."""
        return self.num_kept + len(self.token_ids) - self.num_begun


class Conversation:
    """The text of one sequence.

    Args:
        tokenizer: encodes prompts; a conversation adds no special tokens of its own but `bos`.
        add_bos: begin with the special tokens that the tokenizer puts before a text, unless the text has them
            already. A chat template of the model's own brings what it needs, so it goes without.
    """

    def __init__(self, tokenizer: Tokenizer, add_bos: bool) -> None:
        self._tokenizer = tokenizer
        self._bos = _leading_special_ids(tokenizer) if add_bos else []
        self._text = ""
        self._marks = [Mark(0, 0)]

    def plan(self, text: str, held_ids: Sequence[int], begun: Sequence[int] = ()) -> Prompt:
        """How to make `text` of a sequence that holds `held_ids`, and the reply's first tokens, `begun`, behind it;
        changes nothing.

        Raises:
            RequestError: the tokenizer cannot encode the text.
        """
        mark = self._marks_within(text)[-1]
        new_ids = self._encode(text[mark.text_length :], held_ids[: mark.num_tokens])
        if new_ids is None:
            mark, new_ids = Mark(0, 0), self._encode_all(text)
        new_ids = [*new_ids, *begun]
        agreed = _common_length(held_ids, new_ids, mark.num_tokens)
        return Prompt(text, mark.num_tokens + agreed, new_ids[agreed:], len(begun))

    def rewind(self, num_tokens: int) -> None:
        """The sequence was cut to its first `num_tokens` tokens."""
        self._marks = [mark for mark in self._marks if mark.num_tokens <= num_tokens]
        self._text = self._text[: self._marks[-1].text_length]

    def set_prompt(self, prompt: Prompt) -> None:
        """The sequence was brought to `prompt`."""
        known = min(prompt.num_kept, prompt.num_tokens)
        self._marks = [mark for mark in self._marks_within(prompt.text) if mark.num_tokens <= known]
        self._text = prompt.text
        self._mark(prompt.num_tokens)

    def add_reply(self, prompt_ids: Sequence[int], reply_ids: Sequence[int]) -> None:
        """The model generated `reply_ids` after `prompt_ids`; the last may be a special token that ends it."""
        said, ending = reply_ids, reply_ids[:0]
        if reply_ids and self._is_special(reply_ids[-1]):
            said, ending = reply_ids[:-1], reply_ids[-1:]
        self._text += decode_after(self._tokenizer, prompt_ids, said)
        self._mark(len(prompt_ids) + len(said))
        if ending:
            self._text += self._tokenizer.decode(list(ending), skip_special_tokens=False)
            self._mark(len(prompt_ids) + len(reply_ids))

    def fork(self) -> "Conversation":
        """An independent copy."""
        twin = Conversation(self._tokenizer, add_bos=False)
        twin._bos, twin._text, twin._marks = self._bos, self._text, list(self._marks)
        return twin

    def _mark(self, num_tokens: int) -> None:
        mark = Mark(len(self._text), num_tokens)
        if mark != self._marks[-1]:
            self._marks.append(mark)

    def _marks_within(self, text: str) -> list[Mark]:
        """The marks up to which `text` is the text of the sequence; the first one always is."""
        return [mark for mark in self._marks if text.startswith(self._text[: mark.text_length])]

    def _encode(self, text: str, before: Sequence[int]) -> list[int] | None:
        """Tokens of `text` after `before`; `None` if a tokenizer that treats the start of a text in its own way
        makes something else of it."""
        if not before:
            return self._encode_all(text)
        token_ids = _encode(self._tokenizer, text)
        return token_ids if decode_after(self._tokenizer, before, token_ids) == text else None

    def _encode_all(self, text: str) -> list[int]:
        token_ids = _encode(self._tokenizer, text)
        return token_ids if token_ids[: len(self._bos)] == self._bos else self._bos + token_ids

    def _is_special(self, token_id: int) -> bool:
        return self._tokenizer.decode([token_id], skip_special_tokens=True) == ""


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    try:
        token_ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    except Exception as error:  # `tokenizers` has no narrower type
        raise RequestError(
            f"The tokenizer cannot encode this prompt: {error}",
            "Leave out what is not plain text, or edit the prompt.",
        ) from error
    return token_ids


def _leading_special_ids(tokenizer: Tokenizer) -> list[int]:
    """What the tokenizer puts before every text, as OPT's `</s>`."""
    encoding = tokenizer.encode("a", add_special_tokens=True)
    num_leading = next(i for i, special in enumerate([*encoding.special_tokens_mask, 0]) if not special)
    token_ids: list[int] = encoding.ids[:num_leading]
    return token_ids


def _common_length(held_ids: Sequence[int], new_ids: Sequence[int], start: int) -> int:
    """How many of `new_ids` stand at `held_ids[start:]`."""
    length = min(len(held_ids) - start, len(new_ids))
    return next((i for i in range(length) if held_ids[start + i] != new_ids[i]), length)
