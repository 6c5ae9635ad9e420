"""Random numbers that depend on a request's seed and a position alone: the same in any batch, after any preemption.

Counter-based: the generator is a hash (the finaliser of SplitMix64, Steele et al. 2014) and keeps no state.
"""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) for one token to be sampled.

    Args:
        seed: any int; its lowest 64 bits count.
        position: index of the token in its sequence.
    """
    bits = _mix((_mix(seed & _MASK) + (position + 1) * _GOLDEN) & _MASK)
    return (bits >> 11) * 2.0**-53


def _mix(bits: int) -> int:
    bits = (bits + _GOLDEN) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)
