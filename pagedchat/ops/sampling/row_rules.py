"""What rules of its own make of each row of logits before tokens are drawn, and how rules are packed.

A rule is an entry of a row for one token: what is added to its logit, and up to which position it may not come. A
closed row takes no token that has none. All is one addition in float32, so a GPU and a CPU make the same numbers.
"""

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import ceil_div, element_name, on_cuda, stream_of
from pagedchat.ops.sampling.logits import check_logits

BANNED = -math.inf
"""The bias of a token that is never chosen."""
_NUM_THREADS = 1024
"""Of a thread block, as in kernels/sampling/row_rules.cu."""
_PART = 8 * _NUM_THREADS
"""Tokens of a row that a thread block has, as there."""
_ENTRY = struct.Struct("<ifi")
_WORDS = 3
"""Of an entry, and of a row."""


@dataclass(slots=True)
class RuleRow:
    """The rules of one row; by default there are none."""

    biases: dict[int, float] = field(default_factory=dict)
    """Token id -> what is added to its logit, a number or `BANNED`."""
    untils: dict[int, int] = field(default_factory=dict)
    """Token id -> the first position at which the token may be; in a closed row only of tokens in `biases`."""
    closed: bool = False
    """Whether no token may come that is not in `biases`."""


class PackedRules(NamedTuple):
    """Rules of all rows as the kernel reads them."""

    rows: torch.Tensor
    """`[num_rows, 3]`, int32: a row's first entry, how many it has, whether it is closed."""
    entries: torch.Tensor
    """`[num_entries, 3]`, int32: token id, bits of the bias, first position."""


def pack_rules(rules: Iterable[RuleRow]) -> PackedRules:
    """All rows, on the CPU."""
    each = [(_entries(row), row.closed) for row in rules]
    counts = [len(entries) // _ENTRY.size for entries, _ in each]
    firsts = accumulate(counts, initial=0)
    rows = [[first, count, closed] for first, count, (_, closed) in zip(firsts, counts, each, strict=False)]
    packed = bytearray(b"".join(entries for entries, _ in each))
    words = torch.frombuffer(packed, dtype=torch.int32) if packed else torch.empty(0, dtype=torch.int32)
    return PackedRules(torch.tensor(rows, dtype=torch.int32).view(-1, _WORDS), words.view(-1, _WORDS))


def _entries(row: RuleRow) -> bytes:
    biases, untils = row.biases, row.untils
    tokens = biases if row.closed else biases | untils
    return b"".join(_ENTRY.pack(token, biases.get(token, 0.0), untils.get(token, 0)) for token in tokens)


class AppliedRules:
    """The logits by which tokens are chosen, for steps that follow one another: tensors are looked at once, and
    have other contents each time.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32, rows contiguous; not changed.
        rules: of the rows, where the logits are; tokens are inside the vocabulary.
        positions: `[num_rows]`, int32: position in its sequence of each token to be drawn.

    Raises:
        ValueError: shapes or types that do not go together.
    """

    def __init__(self, logits: torch.Tensor, rules: PackedRules, positions: torch.Tensor) -> None:
        check_logits(logits)
        check_shape("rows", rules.rows, len(logits), _WORDS)
        check_shape("entries", rules.entries, None, _WORDS)
        check_shape("positions", positions, len(logits))
        for name, tensor in {**rules._asdict(), "positions": positions}.items():
            check_dtype(name, tensor, torch.int32)
        self._logits, self._rules, self._positions = logits, rules, positions
        self.ruled = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
        """`[num_rows, vocab_size]`, float32, as `launch` leaves it."""
        if on_cuda(logits):
            self._kernel = get_kernel("row_rules", logits.device.index, ELEMENT=element_name(logits.dtype))
            self._grid = ceil_div(logits.shape[1], _PART), len(logits)
            self._args = (
                self.ruled.data_ptr(),
                logits.data_ptr(),
                rules.rows.data_ptr(),
                rules.entries.data_ptr(),
                positions.data_ptr(),
                i32(logits.shape[1]),
                logits.stride(0),
            )

    def launch(self) -> None:
        """Queue it once more; on a CPU do it."""
        if on_cuda(self._logits):
            self._kernel.launch(self._grid, _NUM_THREADS, self._args, stream=stream_of(self._logits))
        else:
            self.ruled.copy_(_in_torch(self._logits, self._rules, self._positions))


def apply_rules(logits: torch.Tensor, rules: PackedRules, positions: torch.Tensor) -> torch.Tensor:
    """`AppliedRules` for one step: `[num_rows, vocab_size]`, float32."""
    applied = AppliedRules(logits, rules, positions)
    applied.launch()
    return applied.ruled


def _in_torch(logits: torch.Tensor, rules: PackedRules, positions: torch.Tensor) -> torch.Tensor:
    ruled = logits.float().clone()
    for i, (first, count, closed) in enumerate(rules.rows.tolist()):
        entries = rules.entries[first : first + count]
        token_ids = entries[:, 0].long()
        biases = entries[:, 1].contiguous().view(torch.float32)
        values = torch.where(positions[i] < entries[:, 2], BANNED, ruled[i, token_ids] + biases)
        if closed:
            ruled[i] = BANNED
        ruled[i, token_ids] = values
    return ruled
