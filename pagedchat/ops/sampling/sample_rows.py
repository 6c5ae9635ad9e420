"""How each row of a batch is sampled, packed the way that kernels/sampling/sample.cu reads it."""

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import torch

_ROW = struct.Struct("<fifIffffqQ")
ROW_WORDS = _ROW.size // 4

KEY_FRACTION_BITS = 18
KEY_RANGE = 31
"""Keys cover this many powers of two below the most likely token; see kernels/sampling/token_weight.cuh."""

IN_PROMPT = -32768
"""Of a token's count: the token is in the prompt. The other 15 bits are how often it is in the output."""

_LARGEST_SCALE = 3e38  # finite in float32: 0 times it is 0
_SMALLEST_SCALE = 1e-37  # 0 would be greedy


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What applies to one row. The defaults sample from the model's distribution as it is."""

    temperature: float = 1.0
    """0 takes the most likely token, of equals the one with the lowest id."""
    top_k: int = 0
    """This many most likely tokens stay; 0 or less: all."""
    top_p: float = 1.0
    """The most likely tokens stay that together have this share of what min-p and top-k leave."""
    min_p: float = 0.0
    """Tokens stay that are at least this many times as likely as the most likely one."""
    repetition_penalty: float = 1.0
    """Positive logits of tokens in prompt or output are divided by it, others multiplied."""
    presence_penalty: float = 0.0
    """Taken from the logits of tokens in the output."""
    frequency_penalty: float = 0.0
    """Taken from the logits of tokens in the output, once for each time."""
    seed: int = 0
    """Its lowest 64 bits count."""
    counts_row: int = -1
    """Row of the counts that the penalties go by; -1: no penalties."""
    stays: bool = False
    """The token that is there stays, and nothing else counts: of padding, and where somebody else chooses later."""

    def pack(self) -> bytes:
        """The row as the kernel's `RowParams`."""
        return _ROW.pack(
            _scale(self.temperature),
            -1 if self.stays else max(self.top_k, 0),
            self.top_p,
            _min_key(self.min_p),
            self.repetition_penalty,
            1 / self.repetition_penalty,
            self.presence_penalty,
            self.frequency_penalty,
            self.counts_row,
            self.seed & (1 << 64) - 1,
        )


@dataclass(frozen=True, slots=True)
class PackedRow:
    """One row read back: numbers as the kernel sees them, floats rounded to float32."""

    scale: float
    """log2(e) / temperature, or 0 for the most likely token."""
    top_k: int
    """Below 0 the token that is there stays."""
    top_p: float
    min_key: int
    repetition_penalty: float
    reciprocal_penalty: float
    presence_penalty: float
    frequency_penalty: float
    counts_row: int
    seed: int


def pack_rows(rows: Iterable[SampleRow]) -> torch.Tensor:
    """All rows in one tensor, so that one copy brings them to a GPU.

    Returns:
        `[num_rows, ROW_WORDS]`, int32, on the CPU.
    """
    packed = bytearray(b"".join(row.pack() for row in rows))
    words = torch.frombuffer(packed, dtype=torch.int32) if packed else torch.empty(0, dtype=torch.int32)
    return words.view(-1, ROW_WORDS)


def unpack_rows(packed: torch.Tensor) -> list[PackedRow]:
    """The rows of what `pack_rows` made.

    Args:
        packed: `[num_rows, ROW_WORDS]`, int32, on the CPU.
    """
    numbers = struct.iter_unpack(_ROW.format, struct.pack(f"<{packed.numel()}i", *packed.flatten().tolist()))
    return [PackedRow(*row) for row in numbers]


def _scale(temperature: float) -> float:
    if temperature == 0:
        return 0.0
    return min(max(math.log2(math.e) / temperature, _SMALLEST_SCALE), _LARGEST_SCALE)


def _min_key(min_p: float) -> int:
    if min_p <= 0:
        return 0
    return max(0, round((KEY_RANGE + math.log2(min(min_p, 1.0))) * (1 << KEY_FRACTION_BITS)))
