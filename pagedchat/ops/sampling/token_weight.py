"""How likely a token is, in whole numbers, so that sums are exact in any order: token_weight.cuh in Python.

Every step is one operation on float32 that IEEE 754 defines to the last bit, so a GPU gets the same numbers.
"""

import torch

from pagedchat.ops.sampling.sample_rows import KEY_FRACTION_BITS, KEY_RANGE

_FRACTION_MASK = (1 << KEY_FRACTION_BITS) - 1
_32_AS_BITS = 0x42000000
_COEFFICIENTS = tuple(map(float.fromhex, ("0x1.2778b2p-80", "0x1.c91cd6p-60", "0x1.ebdb58p-40", "0x1.62e4bap-20")))
_LEADING, _CONSTANT = float.fromhex("0x1.e9739cp-101"), 0.5


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
