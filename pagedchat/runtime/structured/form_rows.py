"""Replies with a form in steps that follow one another: their masks, made as soon as the tokens before are known.
A mask that stays as it was (`json_place`) is not made again, nor is its reply followed until it has to be.

Nobody compares replies there, which grow: who begins the steps knows that each reply goes on with the token that
was chosen for it, and drops what was begun where that is not so. Knows no logits and no device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import cast

from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.structured.grammar import Grammar, follow_all
from pagedchat.runtime.structured.json_place import JsonPlace
from pagedchat.runtime.structured.mask_jobs import Followed, MaskJobs, MaskRows

_TURNS = 32
"""Steps in which all that are left behind have caught up once."""


@dataclass(slots=True)
class _Held:
    """A sequence whose reply has a form."""

    sequence: Sequence
    followed: Followed
    row: int
    """Of its mask."""

    @property
    def num_followed(self) -> int:
        """Tokens of the sequence up to which it is followed."""
        return self.sequence.num_prompt_tokens + len(self.followed.token_ids)

    def catch_up(self, end: int) -> None:
        """Follow it up to its token `end`, which it has."""
        start = self.num_followed
        if start < end:
            self.followed.take(self.sequence.token_ids[start:end])


class FormRows:
    """Those of a batch, and of the steps that follow it.

    Args:
        sequences: of the batch, all of them.
    """

    def __init__(self, sequences: list[Sequence]) -> None:
        with_form = [sequence for sequence in sequences if sequence.grammar is not None]
        self._rows = {sequence: row for row, sequence in enumerate(with_form)}
        self._stops = frozenset[int]().union(*(sequence.stop_token_ids for sequence in with_form))
        self._sequences: list[Sequence] | None = None
        """Of the last step; the same list as long as nobody ends."""
        self._held: list[_Held] = []
        self._jobs = MaskJobs([])
        """What is made of each of `_held`."""
        self._places: list[JsonPlace | None] = []
        self._are_free = False
        """Whether all of these replies are in the midst of texts that may be any."""
        self._ends: list[int] = []
        """Of each of `_held`, how long its sequence is by the masks that were made last,"""
        self._masks: MaskRows | None = None
        """and where these are."""
        self._turn = 0
        self._of_held: Callable[[list[int]], list[int]] = list
        """Takes theirs out of a column of all sequences."""

    def __len__(self) -> int:
        """Masks, those of sequences that have ended by now included."""
        return len(self._rows)

    def row_of(self, sequence: Sequence) -> int:
        """That of its mask; below 0: it has none."""
        return self._rows.get(sequence, -1)

    def follow(self, sequences: list[Sequence], masks: MaskRows) -> None:
        """Make the masks of replies as they are now.

        Args:
            sequences: of the step: those of the batch that have not ended.
            masks: written; as many rows as this has, at least.

        Raises:
            RequestError: as of `follow_all`.
        """
        replies = [
            (cast(Grammar, sequence.grammar), sequence, self._rows[sequence])
            for sequence in sequences
            if sequence in self._rows
        ]
        followed = follow_all(masks, replies)
        held = [_Held(sequence, each, row) for each, (_, sequence, row) in zip(followed, replies, strict=True)]
        held.sort(key=lambda each: id(each.followed.lexer))
        self._masks = masks
        self._note(sequences, held, [each.num_followed for each in held])

    def go_on(
        self, sequences: list[Sequence], starts: list[int], token_ids: list[int], masks: MaskRows
    ) -> range | None:
        """Make the masks of replies that will be longer by one token than they were, before they are.

        Args:
            sequences: as of `follow`.
            starts: where in each the token will be.
            token_ids: which it is.
            masks: those of the step before; written.

        Returns:
            Rows of masks among which all are that have changed; None if it cannot be done: `follow` will do it once
            the replies have their tokens, and has the words for it.
        """
        if sequences is not self._sequences:
            self._leave_out(sequences)
        if masks != self._masks or self._ends != self._of_held(starts):
            return None
        tokens = self._of_held(token_ids)
        changed = self._changed(tokens)
        if changed and not self._follow_some(changed, tokens, masks):
            return None
        self._ends = [end + 1 for end in self._ends]
        rows = [self._held[i].row for i in changed]
        return range(min(rows), max(rows) + 1) if rows else range(0)

    def _changed(self, tokens: list[int]) -> list[int]:
        """Which of `_held` have other masks behind these tokens, and go on at all."""
        if self._are_free and self._are_plain(tokens):
            return []
        changed = [
            i
            for i, (place, token) in enumerate(zip(self._places, tokens, strict=True))
            if place is None or not place.passes(token)
        ]
        if self._stops.isdisjoint(tokens):
            return changed
        return [i for i in changed if tokens[i] not in self._held[i].sequence.stop_token_ids]

    def _are_plain(self, tokens: list[int]) -> bool:
        """All of them, to replies that are in the midst of free texts."""
        place = self._places[0]
        return place is not None and all(map(place.plain.__getitem__, tokens))

    def _follow_some(self, which: list[int], tokens: list[int], masks: MaskRows) -> bool:
        """Make the masks of some of `_held`; False if that cannot be."""
        jobs, held = self._jobs, [self._held[i] for i in which]
        if len(held) < len(self._held):
            jobs = MaskJobs([jobs.replies[i] for i in which])
        for each, i in zip(held, which, strict=True):
            each.catch_up(self._ends[i])
        new = [tokens[i] for i in which]
        jobs.make(masks, new)
        if jobs.any_failed():
            for each in self._held:
                if each.followed.matcher.is_error():
                    cast(Grammar, each.sequence.grammar).forget(each.sequence)
            return False
        for each, token in zip(held, new, strict=True):
            if each.followed.place is not None:
                each.followed.place.read(token)
        self._are_free = _are_free(self._places)
        return True

    def catch_up(self) -> None:
        """Follow some of the replies that were left behind and will be needed, in turns, lest all that a crowd of
        them lacks be due at once: for when there is time."""
        if self._are_free:
            return
        self._turn = (self._turn + 1) % _TURNS
        for each in self._held[self._turn :: _TURNS]:
            place = each.followed.place
            if place is not None and not place.is_free:
                each.catch_up(len(each.sequence.token_ids))

    def _leave_out(self, sequences: list[Sequence]) -> None:
        """Those that have ended."""
        left = set(sequences)
        stay = [each.sequence in left for each in self._held]
        self._note(sequences, list(compress(self._held, stay)), list(compress(self._ends, stay)))

    def _note(self, sequences: list[Sequence], held: list[_Held], ends: list[int]) -> None:
        place_of = {sequence: place for place, sequence in enumerate(sequences)}
        self._sequences, self._held, self._ends = sequences, held, ends
        self._jobs = MaskJobs([(each.followed, each.row) for each in held])
        self._places = [each.followed.place for each in held]
        self._are_free = _are_free(self._places)
        self._of_held = _taking([place_of[each.sequence] for each in held])


def _are_free(places: list[JsonPlace | None]) -> bool:
    return len(places) > 0 and all(place is not None and place.is_free for place in places)


def _taking(places: list[int]) -> Callable[[list[int]], list[int]]:
    """What takes these elements out of a list."""
    if len(places) < 2:
        return lambda column: [column[place] for place in places]
    elements = itemgetter(*places)
    return lambda column: list(elements(column))
