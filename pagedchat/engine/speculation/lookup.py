"""Prompt lookup: what followed the last tokens of a sequence the last time that they stood in it (Saxena 2023).

An index of one sequence's tokens, which grows by a few operations for each token and is asked by a few more,
however long the sequence is. Knows token ids only: no blocks, no model, and not whether its drafts are any good.
"""

from collections.abc import Sequence

MOST_LOOKED_AT = 16
"""Places where the last tokens stood before, the newest first, of which the one that agrees longest is taken."""
INDEXED_AT_ONCE = 1024
"""Tokens that one call takes in: a long prompt is indexed over several steps."""


class PromptLookup:
    """The places of all runs of `shortest` tokens in one sequence.

    Args:
        longest: tokens at the end that are compared, at most.
        shortest: that must agree, at least 1.
    """

    def __init__(self, longest: int, shortest: int) -> None:
        self._longest, self._shortest = longest, shortest
        self._last: dict[tuple[int, ...], int] = {}
        """Run of tokens -> where its last token stood last."""
        self._before: list[int] = []
        """For each token that is indexed where the same run ended the time before; -1: nowhere."""
        self.agreed = 0
        """Tokens at the end that agreed with those of some place when one was last looked for, at most."""

    def num_behind(self, token_ids: list[int]) -> int:
        """How many tokens `catch_up` would take in."""
        return len(token_ids) - 1 - len(self._before)

    def catch_up(self, token_ids: list[int], most: int = INDEXED_AT_ONCE) -> bool:
        """Take in what the sequence has got since, without its last token, which is what is looked for.

        Returns:
            Whether all of it was taken in.
        """
        last, before, shortest = self._last, self._before, self._shortest
        start, end = len(before), len(token_ids) - 1
        stop = min(end, start + most)
        before += [-1] * min(shortest - 1 - start, stop - start)  # no run ends so early
        start = len(before)
        columns = [token_ids[start + 1 - shortest + i : stop + 1 - shortest + i] for i in range(shortest)]
        for at, run in enumerate(zip(*columns, strict=True), start):
            before.append(last.get(run, -1))
            last[run] = at
        return len(before) >= end

    def draft(self, token_ids: list[int], most: int, needed: int = 0) -> list[int]:
        """What may come next.

        Args:
            token_ids: as `catch_up` has taken them in, with one more at the end, or some more, which are found
                when they are taken in.
            most: tokens.
            needed: that must agree at the end; `shortest` where that is more.

        Returns:
            At most `most` tokens; none where nothing is found.
        """
        at = self.place(token_ids, needed)
        return [] if at < 0 else continued(token_ids, at, most)

    def place(self, token_ids: list[int], needed: int = 0) -> int:
        """Where what may come next stands; -1 where nothing is found. Arguments as those of `draft`."""
        at, best, length = self._last.get(tuple(token_ids[-self._shortest :]), -1), -1, 0
        for _ in range(MOST_LOOKED_AT):
            if at < 0 or length == self._longest:
                break
            agreeing = self._agreement(token_ids, at)
            if agreeing > length:
                best, length = at, agreeing
            at = self._before[at]
        self.agreed = max(length, self._shortest - 1)
        return best + 1 if length >= max(needed, self._shortest) else -1

    def _agreement(self, token_ids: list[int], at: int) -> int:
        """How many tokens up to `at` are those at the end, of as many as are compared."""
        length, most = self._shortest, min(self._longest, at + 1)
        while length < most and token_ids[at - length] == token_ids[-1 - length]:
            length += 1
        return length


def continued(token_ids: Sequence[int], start: int, count: int) -> list[int]:
    """So many tokens from `start` on; past the end of what there is the draft goes on with itself, so that what
    repeats every few tokens is drafted as far as anything else."""
    draft = list(token_ids[start : start + count])
    while len(draft) < count:
        draft.append(draft[len(draft) - (len(token_ids) - start)])
    return draft
