"""Every kernel on the CPU: its op makes of small inputs what torch makes of them, and touches nothing else.

Cases are in emulated_ops/, a list for each folder of kernels.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from _pytest.mark.structures import ParameterSet

from pagedchat.resources import resource_dir
from tests.tools.emulated_ops import (
    attention,
    cache,
    clusters,
    experts,
    products,
    quantized,
    ranks,
    sampling,
    screening,
    whole_step,
)
from tests.tools.emulated_ops.op_case import OpCase
from tests.tools.emulator_case import needs_compiler
from tools.emulator.entries import find_entries
from tools.emulator.fences import FencedTensors, Side
from tools.emulator.ops import kernels_on_cpu

CASES: list[OpCase] = [
    *attention.CASES,
    *cache.CASES,
    *products.CASES,
    *clusters.CASES,
    *experts.CASES,
    *quantized.CASES,
    *ranks.CASES,
    *sampling.CASES,
    *screening.CASES,
    *whole_step.CASES,
]
FEW_MULTIPROCESSORS = 28
ON_GPUS_ALONE = {"streamed_layers"}
"""In some orders the emulator lets thread blocks look for numbers and gives those who make them no turn."""


def test_every_kernel_of_every_file_has_a_case() -> None:
    """A new kernel is run here, or this fails: there is none that the emulator cannot do."""
    texts = [path.read_text(encoding="utf-8") for path in resource_dir("kernels").rglob("*.cu")]
    entries = [[entry.name for entry in find_entries(text)] for text in texts]
    assert all(entries)
    assert {case.entry for case in CASES} == {name for names in entries for name in names} - ON_GPUS_ALONE


def runs() -> Iterator[ParameterSet]:
    """Two orders of warps, a fence on either side: cases of a kernel take turns, and one that has a single case has
    both."""
    sides = [(0, Side.BEHIND, "behind"), (1, Side.BEFORE, "before")]
    numbers, counts = Counter(case.entry for case in CASES), Counter[str]()
    for case in CASES:
        turn, counts[case.entry] = counts[case.entry], counts[case.entry] + 1
        for seed, side, name in sides if numbers[case.entry] == 1 else [sides[turn % 2]]:
            yield pytest.param(case, seed, side, id=f"{case}-{name}")


@needs_compiler
@pytest.mark.parametrize(("case", "seed", "side"), list(runs()))
def test_a_kernel_makes_what_torch_makes(case: OpCase, seed: int, side: Side) -> None:
    expected = case.run()
    with FencedTensors(side), kernels_on_cpu(seed=seed, num_multiprocessors=FEW_MULTIPROCESSORS) as emulated:
        found = case.run()
    assert case.entry in emulated.launched
    for name, wanted in expected.items():
        torch.testing.assert_close(
            found[name],
            wanted,
            rtol=case.tolerance,
            atol=case.tolerance,
            equal_nan=True,
            msg=lambda m, n=name: f"{n}: {m}",
        )
