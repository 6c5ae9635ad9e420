"""Philox4x32-10, a random number generator without state: a number is a function of a key and a counter.

Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". On a GPU
kernels/sampling/philox.cuh computes the same.
"""

_WORD = 0xFFFFFFFF


def philox_64(key: int, counter: int) -> int:
    """The first 64 of the 128 bits for a counter.

    Args:
        key: its lowest 64 bits count.
        counter: likewise; the upper half of the generator's 128 is zero.
    """
    c0, c1, c2, c3 = counter & _WORD, counter >> 32 & _WORD, 0, 0
    k0, k1 = key & _WORD, key >> 32 & _WORD
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = right >> 32 ^ c1 ^ k0, right & _WORD, left >> 32 ^ c3 ^ k1, left & _WORD
        k0, k1 = k0 + 0x9E3779B9 & _WORD, k1 + 0xBB67AE85 & _WORD
    return c1 << 32 | c0
