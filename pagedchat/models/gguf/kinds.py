"""The kinds of tensors in GGUF files: how many bytes a block of so many elements takes. Knows no contents."""

from typing import NamedTuple


class Kind(NamedTuple):
    """How a tensor is stored."""

    name: str
    block_size: int
    """Elements of a row that are stored together."""
    block_bytes: int


KINDS = {
    0: Kind("F32", 1, 4),
    1: Kind("F16", 1, 2),
    2: Kind("Q4_0", 32, 18),
    3: Kind("Q4_1", 32, 20),
    6: Kind("Q5_0", 32, 22),
    7: Kind("Q5_1", 32, 24),
    8: Kind("Q8_0", 32, 34),
    12: Kind("Q4_K", 256, 144),
    13: Kind("Q5_K", 256, 176),
    14: Kind("Q6_K", 256, 210),
    30: Kind("BF16", 1, 2),
    39: Kind("MXFP4", 32, 17),
}
"""By number, those that are read."""

_OTHERS = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
}  # fmt: skip


def kind_name(kind: int) -> str:
    """For a message: `"Q2_K"`, or what there is to say of one that nobody knows."""
    return KINDS[kind].name if kind in KINDS else _OTHERS.get(kind, f"kind {kind}")
