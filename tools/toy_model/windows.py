"""Conversations joined into windows of the whole context, so that every position is trained.

A round draws each conversation as often as its weight says, in random order, and fills window after window. A
window begins with a conversation; the last one in it is cut off at its end. Some conversations are joined to the
one before as if the user had changed the subject: their `<s>` is left out.
"""

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
    if not len(order):
        return np.empty((0, length), np.int32)
    return _fill(corpus.starts[order], corpus.starts[order + 1], joined, length)


def _fill(
    starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], joined: npt.NDArray[np.bool_], length: int
) -> npt.NDArray[np.int32]:
    """Windows of spans `[num_spans]`; all of them but the last are full, so that places follow one another."""
    first = _first_of_windows(ends - starts, joined, length)
    begins = starts + (joined & ~first)
    sizes = ends - begins
    window = np.cumsum(first) - 1
    before = np.cumsum(sizes) - sizes
    offsets = before - before[first][window]
    taken = np.minimum(sizes, length - offsets)
    shifts = begins - (window * length + offsets)
    windows = np.full((window[-1] + 1) * length, -1, np.int32)
    filled = int(taken.sum())
    windows[:filled] = np.arange(filled, dtype=np.int32) + np.repeat(shifts.astype(np.int32), taken)
    return windows.reshape(-1, length)


def _first_of_windows(
    sizes: npt.NDArray[np.int64], joined: npt.NDArray[np.bool_], length: int
) -> npt.NDArray[np.bool_]:
    """`[num_spans]` whether a window begins with this span. A joined span elsewhere is without its `<s>`."""
    after = np.cumsum(sizes - joined)
    following = np.searchsorted(after, after + length - sizes) + 1  # the span that fills the window, and one
    following = np.maximum(following, np.arange(1, len(sizes) + 1)).tolist()
    first = np.zeros(len(sizes), np.bool_)
    span = 0
    while span < len(sizes):
        first[span] = True
        span = following[span]
    return first
