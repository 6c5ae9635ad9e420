"""What a case of an op is: once in torch, once through its kernel on the CPU."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

HALF, BFLOAT, SINGLE = torch.float16, torch.bfloat16, torch.float32
DTYPES = (HALF, BFLOAT, SINGLE)
TOLERANCES = {HALF: 4e-3, BFLOAT: 3e-2, SINGLE: 2e-5}
"""A few roundings of the type, of numbers around one."""
NOTHING = float("nan")
"""What nobody may read, and where it has to be found again."""

Results = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class OpCase:
    """A call of an op."""

    entry: str
    """Of the kernel that it launches."""
    about: str
    run: Callable[[], Results]
    """Makes its inputs and calls the op; gives all that it has returned or written, whole."""
    tolerance: float = 0.0
    """Between torch and kernel, relative or absolute, whichever is more; 0: the same bits."""

    def __str__(self) -> str:
        return f"{self.entry}-{self.about}"


def in_types(
    entry: str, run: Callable[[torch.dtype], Results], *dtypes: torch.dtype, exact: bool = False, about: str = ""
) -> list[OpCase]:
    """The same in several types."""
    return [
        OpCase(
            entry,
            f"{str(dtype).removeprefix('torch.')}{about and ', '}{about}",
            partial(run, dtype),
            0.0 if exact else TOLERANCES[dtype],
        )
        for dtype in dtypes
    ]


def numbers(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """`[len(values)]`."""
    return torch.tensor(values, dtype=dtype)


def rotations(num_positions: int, head_size: int) -> torch.Tensor:
    """`[num_positions, head_size / 2, 2]`, float32: cosine and sine."""
    angles = torch.arange(num_positions)[:, None] * torch.logspace(0, -2, head_size // 2)
    return torch.stack((angles.cos(), angles.sin()), dim=-1)
