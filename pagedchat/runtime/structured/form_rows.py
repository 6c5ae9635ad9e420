"""Replies with a form in steps that follow one another: their masks, made as soon as the tokens before are known.

Nobody compares replies there, which grow: who begins the steps knows that each reply goes on with the token that
was chosen for it, and drops what was begun where that is not so. Knows no logits and no device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from operator import add, itemgetter
from typing import cast

from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.structured.grammar import Grammar, follow_all
from pagedchat.runtime.structured.mask_jobs import Followed, MaskJobs, MaskRows


@dataclass(slots=True)
class _Held:
    """A sequence whose reply has a form."""

    sequence: Sequence
    followed: Followed
    row: int
    """Of its mask."""


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
        self._replies: list[list[int]] = []
        self._prompt_lens: list[int] = []
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
        self._note(sequences, sorted(held, key=lambda each: id(each.followed.lexer)))

    def go_on(self, sequences: list[Sequence], starts: list[int], token_ids: list[int], masks: MaskRows) -> bool:
        """Make the masks of replies that will be longer by one token than they were, before they are.

        Args:
            sequences: as of `follow`.
            starts: where in each the token will be.
            token_ids: which it is.
            masks: as of `follow`.

        Returns:
            False if that cannot be: `follow` will do it once they are, and has the words for it.
        """
        if sequences is not self._sequences:
            self._leave_out(sequences)
        jobs = self._jobs
        if list(map(add, map(len, self._replies), self._prompt_lens)) != self._of_held(starts):
            return False
        tokens = self._of_held(token_ids)
        if not self._stops.isdisjoint(tokens):
            goes_on = [
                token not in each.sequence.stop_token_ids for each, token in zip(self._held, tokens, strict=True)
            ]
            jobs, tokens = MaskJobs(list(compress(jobs.replies, goes_on))), list(compress(tokens, goes_on))
        jobs.make(masks, tokens)
        if not jobs.any_failed():
            return True
        for each in self._held:
            if each.followed.matcher.is_error():
                cast(Grammar, each.sequence.grammar).forget(each.sequence)
        return False

    def _leave_out(self, sequences: list[Sequence]) -> None:
        """Those that have ended."""
        left = set(sequences)
        self._note(sequences, [each for each in self._held if each.sequence in left])

    def _note(self, sequences: list[Sequence], held: list[_Held]) -> None:
        place_of = {sequence: place for place, sequence in enumerate(sequences)}
        self._sequences, self._held = sequences, held
        self._jobs = MaskJobs([(each.followed, each.row) for each in held])
        self._replies = [each.followed.token_ids for each in held]
        self._prompt_lens = [each.sequence.num_prompt_tokens for each in held]
        self._of_held = _taking([place_of[each.sequence] for each in held])


def _taking(places: list[int]) -> Callable[[list[int]], list[int]]:
    """What takes these elements out of a list."""
    if len(places) < 2:
        return lambda column: [column[place] for place in places]
    elements = itemgetter(*places)
    return lambda column: list(elements(column))
