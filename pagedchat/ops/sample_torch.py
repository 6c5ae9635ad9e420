"""The torch version of `sample`: kernels/sample.cu operation by operation, so that both draw the same tokens.

Logits are float32 and every step is one elementwise operation that IEEE 754 defines to the last bit; probabilities
are whole numbers, whose sums are exact in float64. Rows are done one after the other: what a row needs stays in the
processor's cache, which makes this faster than the whole batch at once.
"""

import math
from dataclasses import dataclass

import torch

from pagedchat.ops.philox import philox_64
from pagedchat.ops.sample_rows import KEY_FRACTION_BITS, KEY_RANGE, PackedRow

SHORTLIST = 256
"""Most likely tokens looked at first: most filters end in here, and these few are soon gone through."""

_FRACTION_MASK = (1 << KEY_FRACTION_BITS) - 1
_32_AS_BITS = 0x42000000
_COEFFICIENTS = tuple(map(float.fromhex, ("0x1.2778b2p-80", "0x1.c91cd6p-60", "0x1.ebdb58p-40", "0x1.62e4bap-20")))
_LEADING, _CONSTANT = float.fromhex("0x1.e9739cp-101"), 0.5
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
    """All tokens of a row, or some of them, in the order of the vocabulary."""

    keys: torch.Tensor
    """`[num_tokens]`, int32."""
    weights: torch.Tensor
    """`[num_tokens]`, float32."""

    @classmethod
    def of(cls, logits: torch.Tensor, best: torch.Tensor, scale: float) -> "_Tokens":
        """See `token_keys`."""
        keys = token_keys(logits, best, scale)
        return cls(keys, token_weights(keys))


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
    tokens = None
    if row.top_k < SHORTLIST < len(logits) and (row.top_k > 0 or row.top_p < 1):
        tokens = None if row.top_k > 0 else _Tokens.of(logits, best, row.scale)
        drawn = _draw_from_shortlist(logits, best, row, tokens, random)
        if drawn is not None:
            return drawn
    tokens = tokens or _Tokens.of(logits, best, row.scale)
    return _draw(_kept_weights(tokens, _filter(tokens, tokens, row)), random)


def token_keys(logits: torch.Tensor, best: torch.Tensor, scale: float) -> torch.Tensor:
    """How likely tokens are, on a scale of logarithms: `[vocab_size]`, int32, 0 to 31 * 2^18, the best token's.

    Args:
        logits: `[vocab_size]`, float32.
        best: `[]`, the largest of them.
        scale: log2(e) / temperature.
    """
    distances = (logits - best).mul_(scale).clamp_min_(-KEY_RANGE)
    # A float between 32 and 64 has just as many fraction bits as a key: the addition rounds to them.
    return distances.add_(32 + KEY_RANGE).view(torch.int32).sub_(_32_AS_BITS)


def token_weights(keys: torch.Tensor) -> torch.Tensor:
    """Probabilities, up to a factor, as whole numbers of at most 2^30: `[vocab_size]`, float32.

    Args:
        keys: `[vocab_size]`, int32.
    """
    x = (keys & _FRACTION_MASK).float()
    y = x * _LEADING
    for coefficient in _COEFFICIENTS:
        y.add_(coefficient).mul_(x)
    y.add_(_CONSTANT)  # 2^fraction / 2
    y.view(torch.int32).add_((keys >> KEY_FRACTION_BITS).bitwise_left_shift_(23))
    return y.round_()


def _penalise(logits: torch.Tensor, counts: torch.Tensor, row: PackedRow) -> torch.Tensor:
    cells = counts.nonzero()[:, 0]
    values, found = logits[cells], counts[cells]
    times = (found & 0x7FFF).float()
    values = torch.where(values > 0, values * row.reciprocal_penalty, values * row.repetition_penalty)
    values = values - times * row.frequency_penalty
    values = torch.where(times > 0, values - row.presence_penalty, values)
    return logits.index_put((cells,), values)


def _draw_from_shortlist(
    logits: torch.Tensor, best: torch.Tensor, row: PackedRow, everything: _Tokens | None, random: int
) -> int | None:
    """The token, or `None` if the filters may leave some that are not in the shortlist.

    `everything` is needed where top-k does not end in the shortlist.
    """
    token_ids = logits.topk(SHORTLIST).indices.sort().values
    few = _Tokens.of(logits[token_ids], best, row.scale)
    kept = _filter(few, everything or few, row)
    if kept.key <= int(few.keys.amin()):
        return None
    return int(token_ids[_draw(_kept_weights(few, kept), random)])


def _filter(tokens: _Tokens, everything: _Tokens, row: PackedRow) -> _Kept:
    """What the filters leave of `tokens`; top-p goes by the mass of `everything`."""
    kept = _Kept(max(row.min_key - 1, 0))
    if 0 < row.top_k < len(everything.keys):
        kept = _narrow(tokens, kept, row.top_k, by_mass=False)
    if row.top_p < 1:
        mass = int(_kept_weights(everything, kept).sum(dtype=torch.float64))
        kept = _narrow(tokens, kept, max(1, math.ceil(row.top_p * mass)), by_mass=True)
    return kept


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


def _kept_weights(tokens: _Tokens, kept: _Kept) -> torch.Tensor:
    """The weights, those of tokens that are filtered out set to zero: `[num_tokens]`, float32."""
    if kept.key == 0:
        return tokens.weights  # nothing is ruled out: the weight of key 0 is 0
    weights = tokens.weights * (tokens.keys > kept.key)
    if kept.ties:
        tied = (tokens.keys == kept.key).nonzero()[: kept.ties, 0]
        weights[tied] = tokens.weights[tied]
    return weights


def _draw(weights: torch.Tensor, random: int) -> int:
    """First token whose cumulative weight is above a random share of their sum."""
    cumulative = weights.cumsum(0, dtype=torch.float64)
    target = random * int(cumulative[-1]) >> 64
    return int(torch.searchsorted(cumulative, float(target), right=True))
