"""The torch version of `sample`, operation by operation as kernels/sampling/sample.cu: both draw the same tokens.

Probabilities are whole numbers (`token_weight`), whose sums are exact in float64. Rows are done one after the
other: what a row needs stays in the processor's cache, which makes this faster than the whole batch at once. Tokens
without a weight are put aside at once: of a model's logits most of them.
"""

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from pagedchat.ops.sampling.philox import philox_64
from pagedchat.ops.sampling.sample_rows import KEY_RANGE, PackedRow
from pagedchat.ops.sampling.token_weight import token_keys, token_weights

SHORTLIST = 256
"""Most likely tokens looked at first: most filters end in here, and these few are soon sorted."""

_LOOKED_AT, _FEW = 1024, 8
"""Logits that tell whether fewer than an eighth of all is near the highest."""
_WORD = 4
"""Counts in 64 bits."""
_LOW_BITS = 11
"""Of a key: a threshold is found by its upper 12 bits first, then by these."""
_LOW_MASK = (1 << _LOW_BITS) - 1


@dataclass(frozen=True, slots=True)
class _Kept:
    """Tokens above `key` stay, and the first `ties` tokens that have it."""

    key: int
    ties: int = 0


@dataclass(frozen=True, slots=True)
class _Tokens:
    """How likely all the tokens of a row are."""

    keys: torch.Tensor
    """`[vocab_size]`, int32."""
    weights: torch.Tensor
    """`[vocab_size]`, float32."""

    @classmethod
    def of(cls, logits: torch.Tensor, best: torch.Tensor, scale: float) -> "_Tokens":
        """See `token_keys`."""
        keys = token_keys(logits, best, scale)
        return cls(keys, token_weights(keys))

    def kept_weights(self, kept: _Kept) -> torch.Tensor:
        """The weights, those of tokens that are filtered out set to zero: `[vocab_size]`, float32."""
        if kept.key == 0:
            return self.weights  # nothing is ruled out: the weight of key 0 is 0
        weights = self.weights * (self.keys > kept.key)
        if kept.ties:
            tied = (self.keys == kept.key).nonzero()[: kept.ties, 0]
            weights[tied] = self.weights[tied]
        return weights

    def needed_mass(self, kept: _Kept, row: PackedRow) -> int:
        """What top-p keeps of the mass that `kept` leaves."""
        return _share(row.top_p, int(self.kept_weights(kept).sum(dtype=torch.float64)))


def sample_row(logits: torch.Tensor, row: PackedRow, position: int, counts: torch.Tensor | None) -> int:
    """The next token of one row.

    Args:
        logits: `[vocab_size]`, any float type; not changed.
        row: what applies to it.
        position: of the token to be drawn, in its sequence.
        counts: `[num_counts, vocab_size]`, int16, see `sample`.
    """
    logits = logits.float()
    if counts is not None and row.counts_row >= 0:
        logits = _penalise(logits, counts[row.counts_row], row)
    best = logits.amax()
    if row.scale == 0 or not math.isfinite(float(best)):
        return int(logits.max(dim=0).indices)  # three times as fast as argmax on a CPU
    random = philox_64(row.seed, position)
    near = _near(logits.numpy(), float(best), row.scale)
    if near is None:
        return _draw(logits, best, row, random)
    return int(near[_draw(logits[near], best, row, random)])


def _near(logits: np.ndarray[Any, np.dtype[np.float32]], best: float, scale: float) -> torch.Tensor | None:
    """The tokens that have a weight, in order, and maybe some others: of a model's logits few. None where they are
    many, so that nothing would be won.

    By numpy, which takes a sixth of torch's time for it on a CPU.
    """
    least = best - KEY_RANGE / scale
    least -= 1e-5 * (abs(best) + abs(least))  # no key is rounded over that
    some = logits[:: max(1, len(logits) // _LOOKED_AT)]
    if _FEW * np.count_nonzero(some >= least) > len(some):
        return None
    return torch.from_numpy(np.flatnonzero(logits >= least))


def _draw(logits: torch.Tensor, best: torch.Tensor, row: PackedRow, random: int) -> int:
    """One of the tokens whose logits these are, in the order of the vocabulary: its place among them."""
    tokens = None
    if row.top_k < SHORTLIST and (row.top_k > 0 or row.top_p < 1):
        tokens = None if row.top_k > 0 else _Tokens.of(logits, best, row.scale)
        drawn = _draw_from_shortlist(logits, best, row, tokens, random)
        if drawn is not None:
            return drawn
    tokens = tokens or _Tokens.of(logits, best, row.scale)
    cumulative = tokens.kept_weights(_filter(tokens, row)).cumsum(0, dtype=torch.float64)
    target = random * int(cumulative[-1]) >> 64
    return int(torch.searchsorted(cumulative, float(target), right=True))


def count_token(counts: torch.Tensor, token_id: int) -> None:
    """One more of a token in the counts of its row, `[vocab_size]`, int16."""
    if int(counts[token_id]) & 0x7FFF < 0x7FFF:
        counts[token_id] += 1


def _penalise(logits: torch.Tensor, counts: torch.Tensor, row: PackedRow) -> torch.Tensor:
    cells = _counted(counts)
    values, found = logits[cells], counts[cells]
    times = (found & 0x7FFF).float()
    values = torch.where(values > 0, values * row.reciprocal_penalty, values * row.repetition_penalty)
    values = values - times * row.frequency_penalty
    values = torch.where(times > 0, values - row.presence_penalty, values)
    return logits.index_put((cells,), values)


def _counted(counts: torch.Tensor) -> torch.Tensor:
    """The tokens of a row of counts that have one: looked for by words, of which few are not zero."""
    if len(counts) % _WORD or counts.storage_offset() % _WORD:
        return counts.nonzero()[:, 0]
    words = counts.view(torch.int64).nonzero()
    cells = (words * _WORD + torch.arange(_WORD)).flatten()
    return cells[counts[cells] != 0]


def _draw_from_shortlist(
    logits: torch.Tensor, best: torch.Tensor, row: PackedRow, everything: _Tokens | None, random: int
) -> int | None:
    """The token, or `None` if the filters may leave some that are not in the shortlist.

    `everything` is needed where top-k does not end in the shortlist.
    """
    values, token_ids = logits.topk(min(SHORTLIST, len(logits)))
    keys = token_keys(values, best, row.scale)
    few = zip(keys.tolist(), token_ids.tolist(), token_weights(keys).long().tolist(), strict=True)
    floor = max(row.min_key - 1, 0)
    ranked = sorted((-key, token_id, weight) for key, token_id, weight in few if key > floor)[: row.top_k or None]
    if row.top_p < 1:
        through = list(accumulate(weight for _, _, weight in ranked))
        needed = everything.needed_mass(_Kept(floor), row) if everything else _share(row.top_p, through[-1])
        ranked = ranked[: bisect_left(through, needed) + 1]
    if len(values) < len(logits) and -ranked[-1][0] <= int(keys[-1]):
        return None
    kept = sorted((token_id, weight) for _, token_id, weight in ranked)
    through = list(accumulate(weight for _, weight in kept))
    return int(kept[bisect_right(through, random * through[-1] >> 64)][0])


def _filter(tokens: _Tokens, row: PackedRow) -> _Kept:
    """What min-p, top-k and top-p leave, one after the other."""
    kept = _Kept(max(row.min_key - 1, 0))
    if 0 < row.top_k < len(tokens.keys):
        kept = _narrow(tokens, kept, row.top_k, by_mass=False)
    if row.top_p < 1:
        kept = _narrow(tokens, kept, tokens.needed_mass(kept, row), by_mass=True)
    return kept


def _share(top_p: float, mass: int) -> int:
    return max(1, math.ceil(top_p * mass))


def _narrow(tokens: _Tokens, kept: _Kept, needed: int, *, by_mass: bool) -> _Kept:
    """What keeps the first `needed` of the tokens that `kept` leaves, or the first ones with that mass."""
    members = tokens.keys > kept.key
    weights = tokens.weights if by_mass else None
    high, missing = _bin_of(tokens.keys >> _LOW_BITS, weights, members, needed)
    if high < 0:
        return _Kept(kept.key, min(kept.ties, -(-missing // (_weight_of(kept.key) if by_mass else 1))))
    members &= tokens.keys >> _LOW_BITS == high
    low, missing = _bin_of(tokens.keys & _LOW_MASK, weights, members, missing)
    key = high << _LOW_BITS | low
    return _Kept(key, -(-missing // (_weight_of(key) if by_mass else 1)))


def _bin_of(
    digits: torch.Tensor, weights: torch.Tensor | None, members: torch.Tensor, needed: int
) -> tuple[int, int]:
    """The digit at which members or their weights, from the largest digit on, add up to `needed`, or -1.

    And what is missing of `needed` above that digit.
    """
    amounts = (members if weights is None else weights * members).double()
    reached = torch.bincount(digits, amounts).flip(0).cumsum(0)
    index = int(torch.searchsorted(reached, needed))
    missing = needed - (int(reached[index - 1]) if index else 0)
    return (len(reached) - 1 - index if index < len(reached) else -1), missing


def _weight_of(key: int) -> int:
    return max(1, int(token_weights(torch.tensor([key], dtype=torch.int32))))
