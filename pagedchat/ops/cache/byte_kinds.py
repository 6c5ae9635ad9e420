"""What a cache of one byte an element may hold, in figures; `byte_cache` has the rest. Loads no torch."""

from typing import Literal

CacheKind = Literal["int8", "fp8"]
LARGEST_OF: dict[CacheKind, float] = {"int8": 127.0, "fp8": 448.0}
"""What the largest element of a head becomes, at most."""
CACHE_KIND_OF: dict[CacheKind, int] = {"int8": 1, "fp8": 2}
"""The `CACHE_KIND` constant of the kernels (byte_elements.cuh); 0 for a cache of any other type."""
LEAST_SCALE = 2.0**-96
"""So that one divided by it is a number, of zeros too."""
