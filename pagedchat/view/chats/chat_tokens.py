"""One chat's turns beside its tokens: which blocks a passage of the chat lies in, and which passages a block holds.

Made when somebody asks and thrown away; it knows a session, the engine view and no widget. Positions are those of
the turn's own text, whatever of it is drawn.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Turn
from pagedchat.engine.mirror import MirrorSequence
from pagedchat.view.chats.turn_spans import Place, find_turns
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.token_text import SequenceText, sequence_text


class Passage(NamedTuple):
    """A part of one turn's text."""

    turn: int
    """Index into the session's entries; one past the last is the reply being written."""
    start: int
    end: int


class ChatTokens:
    """The tokens of one sequence and the turns found in them.

    Args:
        texts: the turns' exact texts.
        places: where in `written` each of them begins.
        written: all that the sequence's tokens say.
        sequence: whose block table it is.
        block_size: tokens of a block.
    """

    def __init__(
        self,
        texts: Sequence[str],
        places: Sequence[Place],
        written: SequenceText,
        sequence: MirrorSequence,
        block_size: int,
    ) -> None:
        self._texts = texts
        self._places = places
        self._written = written
        self._sequence = sequence
        self._block_size = block_size

    def slots_of(self, passages: Iterable[Passage]) -> Iterator[tuple[int, int]]:
        """`(block_id, block_offset)` of every computed token of these passages."""
        table, size = self._sequence.block_table, self._block_size
        computed = min(self._sequence.num_computed, len(table) * size)
        for passage in passages:
            for token in self._tokens_of(passage):
                if token < computed:
                    yield table[token // size], token % size

    def blocks_of(self, passages: Iterable[Passage]) -> frozenset[int]:
        """The blocks in which these passages lie; none where a turn was not found in the tokens."""
        return frozenset(block_id for block_id, _ in self.slots_of(passages))

    def passages_of(self, block_id: int) -> list[Passage]:
        """What of the chat the block holds."""
        if block_id not in self._sequence.block_table:
            return []
        first = self._sequence.block_table.index(block_id) * self._block_size
        last = min(first + self._block_size, self._sequence.num_computed)
        start, end = self._written.chars_of(first, last)
        parts = (self._part(turn, start, end) for turn in range(len(self._texts)))
        return [part for part in parts if part is not None]

    def _tokens_of(self, passage: Passage) -> range:
        if passage.turn >= len(self._texts):
            return range(0)
        place, text = self._places[passage.turn], self._texts[passage.turn]
        if place is None:
            return range(0)
        return self._written.tokens_of(place + passage.start, place + min(passage.end, len(text)))

    def _part(self, turn: int, start: int, end: int) -> Passage | None:
        place, text = self._places[turn], self._texts[turn]
        if place is None:
            return None
        low, high = max(start, place) - place, min(end, place + len(text)) - place
        return Passage(turn, low, high) if low < high else None


def chat_tokens(session: ChatSession, view: EngineView) -> ChatTokens | None:
    """The chat beside its sequence in the state that is shown; None while the engine has no such sequence.

    In the past a pane shows all that the sequence says as one text, so this text is the only turn then.
    """
    mirror = view.shown.mirror
    sequence = mirror.sequences.get(session.session_id)
    if sequence is None:
        return None
    written = sequence_text(sequence.token_ids, view.token_texts)
    if view.past is not None:
        return ChatTokens([written.text], [0], written, sequence, mirror.block_size)
    turns = _turns(session)
    system = [Turn("system", session.system.strip())] if session.system else []
    labelled = view.shown.info.chat_template == "plain"
    places = find_turns([*system, *turns], written, labelled=labelled)[len(system) :]
    return ChatTokens([turn.text for turn in turns], places, written, sequence, mirror.block_size)


def _turns(session: ChatSession) -> list[Turn]:
    turns = [entry.turn for entry in session.entries]
    return [*turns, Turn("assistant", session.open_text)] if session.busy else turns
