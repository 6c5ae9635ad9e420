"""Conversations joined into windows of the whole context, so that every position is trained.

A round draws each conversation as often as its weight says, in random order, and fills window after window. A
window begins with a conversation; the last one in it is cut off at its end. Some conversations are joined to the
one before as if the user had changed the subject: their `<s>` is left out.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tools.toy_model.corpus import Corpus

JOINED_SHARE = 0.35
"""Share of the conversations that go on from the one before, where they have no system prompt."""


def round_of_windows(
    corpus: Corpus,
    draws: npt.NDArray[np.float64],
    can_join: npt.NDArray[np.bool_],
    length: int,
    rng: np.random.Generator,
) -> npt.NDArray[np.int32]:
    """One round.

    Args:
        corpus: the conversations.
        draws: `[num_conversations]` expected draws of each.
        can_join: `[num_conversations]` whether it may go on from another one.
        length: of a window; the context and one token more.
        rng: of the draws, the order and the joins.

    Returns:
        `[num_windows, length]` places in `corpus.tokens`; -1 where nothing is.
    """
    times = np.floor(draws + rng.random(len(draws))).astype(np.int64)
    order = np.repeat(np.arange(len(draws)), times)
    rng.shuffle(order)
    joined = can_join[order] & (rng.random(len(order)) < JOINED_SHARE)
    spans = zip(corpus.starts[order].tolist(), corpus.starts[order + 1].tolist(), joined.tolist(), strict=True)
    return np.stack(list(_fill(spans, length))) if len(order) else np.empty((0, length), np.int32)


def _fill(spans: Iterable[tuple[int, int, bool]], length: int) -> Iterator[npt.NDArray[np.int32]]:
    """Windows over `(start, end, joined)`."""
    window = np.full(length, -1, np.int32)
    filled = 0
    for start, end, joined in spans:
        begin = start + 1 if joined and filled else start
        size = min(end - begin, length - filled)
        window[filled : filled + size] = np.arange(begin, begin + size)
        filled += size
        if filled == length:
            yield window
            window = np.full(length, -1, np.int32)
            filled = 0
    if filled:
        yield window
