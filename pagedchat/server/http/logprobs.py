"""How likely tokens were, in the two forms of OpenAI's API: lists for completions, entries for chats."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagedchat.server.http.schemas.chat import ChatLogprob, ChatLogprobs, TopLogprob
from pagedchat.server.http.schemas.completions import TextLogprobs

if TYPE_CHECKING:
    from pagedchat.outputs import Logprob, PositionLogprobs


def chat_logprobs(token_ids: Sequence[int], positions: "Sequence[PositionLogprobs]", top: int) -> ChatLogprobs:
    """Of tokens, with the `top` most likely ones in the place of each."""
    return ChatLogprobs(content=[_entry(*each, top) for each in zip(token_ids, positions, strict=False)])


def _entry(token_id: int, position: "PositionLogprobs", top: int) -> ChatLogprob:
    own = position[token_id]
    text = _text(token_id, own)
    likeliest = [
        TopLogprob(token=each, logprob=one.logprob, bytes=list(each.encode()))
        for each, one in _likeliest(position, top)
    ]
    return ChatLogprob(token=text, logprob=own.logprob, bytes=list(text.encode()), top_logprobs=likeliest)


def _likeliest(position: "PositionLogprobs", top: int) -> "list[tuple[str, Logprob]]":
    ranked = sorted(position.items(), key=lambda item: item[1].rank)
    return [(_text(token_id, one), one) for token_id, one in ranked[:top]]


def _text(token_id: int, one: "Logprob") -> str:
    return one.decoded_token if one.decoded_token is not None else f"token_id:{token_id}"


class TextLogprobsTeller:
    """Of one reply of a completion, piece by piece.

    Args:
        top: how many of the most likely tokens are told.
        offset: characters before the first token.
    """

    def __init__(self, top: int, offset: int = 0) -> None:
        self._top = top
        self._offset = offset

    def tell(
        self, token_ids: Sequence[int], positions: "Sequence[PositionLogprobs | None]", first: str = ""
    ) -> TextLogprobs:
        """Of the next tokens; nothing is known of a prompt's first one, which reads `first`."""
        told = TextLogprobs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
        for token_id, position in zip(token_ids, positions, strict=False):
            own = position[token_id] if position else None
            text = _text(token_id, own) if own else first
            told.text_offset.append(self._offset)
            told.tokens.append(text)
            told.token_logprobs.append(own.logprob if own else None)
            told.top_logprobs.append(
                {each: one.logprob for each, one in reversed(_likeliest(position, self._top))} if position else None
            )
            self._offset += len(text)
        return told
