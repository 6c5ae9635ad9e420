"""Replies with a form in steps that follow one another: their masks, made as soon as the tokens before are known.

Nobody compares replies there, which grow: who begins the steps knows that each reply goes on with the token that
was chosen for it, and drops what was begun where that is not so. Knows no logits and no device.
"""

from dataclasses import dataclass
from typing import cast

from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.structured.grammar import Followed, Grammar, MaskRows, follow_all, make_masks


@dataclass(slots=True)
class _Held:
    """A sequence whose reply has a form."""

    sequence: Sequence
    followed: Followed
    row: int
    """Of its mask."""
    prompt_len: int


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
        self._jobs: list[tuple[Followed, int]] = []
        """What is made of each of `_held`."""
        self._places: list[int] = []
        """Where each of `_held` is among the sequences."""

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
        held = [
            _Held(sequence, each, row, sequence.num_prompt_tokens)
            for each, (_, sequence, row) in zip(followed, replies, strict=True)
        ]
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
        held, jobs, places = self._held, self._jobs, self._places
        if [len(each.followed.token_ids) + each.prompt_len for each in held] != [starts[place] for place in places]:
            return False
        tokens = [token_ids[place] for place in places]
        if not self._stops.isdisjoint(tokens):
            on = [i for i, token in enumerate(tokens) if token not in held[i].sequence.stop_token_ids]
            jobs, tokens = [jobs[i] for i in on], [tokens[i] for i in on]
        make_masks(masks, jobs, tokens)
        if True not in [followed.matcher.is_error() for followed, _ in jobs]:
            return True
        for each in held:
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
        self._jobs = [(each.followed, each.row) for each in held]
        self._places = [place_of[each.sequence] for each in held]
