"""One concept, one place: `kernels/`, `pagedchat/ops/` and `tests/ops/` have the same folders and names."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pagedchat.ops import catalogue
from pagedchat.resources import resource_dir

KERNELS = resource_dir("kernels")
OPS = Path(catalogue.__file__).parent
TESTS = Path(__file__).parent
WITHOUT_KERNELS = {"cpu"}
"""Folders of ops that are none for a GPU."""
FLOORS = sorted(folder.name for folder in KERNELS.iterdir() if folder.is_dir())
LAUNCHED_BY_OTHERS = {
    "prefill_merge": "prefill_mma",  # right behind its own kernel, where that splits the keys
    # the op chooses by the size of the weight: registers, or a stream through shared memory
    "streamed_linear": "small_batch_launch",
    "streamed_qkv": "small_batch_launch",
    "streamed_vocabulary": "next_token",
    # the op chooses by how many pairs share an expert, and by what multiplies the type
    "expert_tiles": "expert_linear",
    "expert_simt": "expert_linear",
    "expert_warpgroups": "expert_linear",
    "expert_few_bits": "expert_linear",
    "few_bits_warpgroups": "few_bits_linear",  # the op chooses by the GPU
    # one behind the other: digits of rows, what logits are at most; then the likeliest token, or what to draw from
    "screen_rows": "screened",
    "screen_vocabulary": "screened",
    "choose_screened": "screened_argmax",
    "list_screened": "screened_draw",
}
"""Kernels without an op of their name, with the module that launches them."""
DECLARATIONS = "kernels"
"""The module of a folder that says what its kernels are compiled for; it launches none."""


def kernels_of(floor: str) -> set[str]:
    return {path.stem for path in (KERNELS / floor).glob("*.cu")}


def modules_of(floor: str) -> set[str]:
    return {path.stem for path in (OPS / floor).glob("*.py")} - {"__init__"}


@cache
def words_of(floor: str, module: str) -> set[str]:
    """All strings of a module; the stems of the kernels that it launches are among them."""
    tree = ast.parse((OPS / floor / f"{module}.py").read_text())
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def launchers() -> Iterator[tuple[str, str, set[str]]]:
    """Folder and name of every module that names kernels, and which."""
    everything = set().union(*map(kernels_of, FLOORS))
    for floor in FLOORS:
        for module in sorted(modules_of(floor) - {DECLARATIONS}):
            named = words_of(floor, module) & everything
            if named:
                yield floor, module, named


def test_the_three_trees_have_the_same_folders() -> None:
    for root in (OPS, TESTS):
        folders = (path.name for path in root.iterdir() if path.is_dir() and any(path.glob("*.py")))
        assert sorted(set(folders) - WITHOUT_KERNELS) == FLOORS


def test_no_two_kernels_or_headers_have_one_name() -> None:
    for suffix in ("cu", "cuh"):
        counts = Counter(path.stem for path in KERNELS.rglob(f"*.{suffix}"))
        assert [stem for stem, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("floor", FLOORS)
def test_a_folder_declares_its_own_kernels_and_launches_no_others(floor: str) -> None:
    stems = kernels_of(floor)
    assert words_of(floor, DECLARATIONS) >= stems if stems else DECLARATIONS not in modules_of(floor)
    named: set[str] = set().union(*(found for place, _, found in launchers() if place == floor))
    assert named == stems


@pytest.mark.parametrize("floor", FLOORS)
def test_a_kernel_is_launched_by_the_op_of_its_name(floor: str) -> None:
    named = {module: stems for place, module, stems in launchers() if place == floor}
    for stem in kernels_of(floor):
        assert stem in named[LAUNCHED_BY_OTHERS.get(stem, stem)]
    assert LAUNCHED_BY_OTHERS.keys() & modules_of(floor) == set()


@pytest.mark.parametrize(("floor", "module"), [(floor, module) for floor, module, _ in launchers()])
def test_what_launches_a_kernel_has_tests_of_its_name(floor: str, module: str) -> None:
    if module in LAUNCHED_BY_OTHERS.values() and module not in kernels_of(floor):
        return  # what several ops have in common
    assert any((TESTS / floor).glob(f"test_{module}*.py"))


@pytest.mark.parametrize("floor", FLOORS)
def test_every_test_is_named_after_a_module_of_its_folder(floor: str) -> None:
    modules = modules_of(floor)
    for path in (TESTS / floor).glob("test_*.py"):
        assert any(path.stem.startswith(f"test_{module}") for module in modules), path
