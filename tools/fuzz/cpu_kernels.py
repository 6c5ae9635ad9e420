"""CPU kernels: files of theirs that others wrote are whole or not there, threads do each unit once however work is
cut up, numbers of any size in one row are no other row's business, and by whatever way the most likely tokens are
found they are the same.
"""

import ctypes
import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from pagedchat.errors import KernelError
from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.library import Library
from pagedchat.jit.cpu.pool import Job, Pool, Program
from pagedchat.jit.cpu.target import host_target
from pagedchat.ops.cpu.bounded_copy import GROUP
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.ops.cpu.linear import FEW_ROWS, CpuLinear
from pagedchat.ops.cpu.mixture import CpuMixture, ExpertTables, Mixed, MixtureMemory
from pagedchat.ops.cpu.packing import packed_weight
from pagedchat.ops.cpu.product import Product, ProductInputs, Rows, product_jobs
from pagedchat.ops.experts.gate import SILU
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.private_files import make_folder
from pagedchat.runtime.cpu.likeliest import LikeliestTokens
from tests.faults.counting import module_that_counts
from tools.fuzz.target import Target

_BODY = bytes(range(256)) * 2
_FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
_FORMATS = ("float32", "bfloat16", "int8", "int4")


@st.composite
def _damages(draw: st.DrawFn) -> list[tuple[str, int, bytes]]:
    """Places of a file, and what stands there instead; `"cut"`: it ends there."""
    kinds = st.sampled_from(["put", "insert", "cut"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 600), st.binary(max_size=9)), max_size=4))


def _check_file(damages: list[tuple[str, int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache_of_it = ObjectCache(Path(folder) / "kernels")
        make_folder(Path(folder) / "kernels")
        cache_of_it.put("key", _BODY)
        [path] = (Path(folder) / "kernels").iterdir()
        whole = content = path.read_bytes()
        for how, place, piece in damages:
            rest = {"put": place + len(piece), "insert": place, "cut": len(content)}[how]
            content = content[:place] + piece + content[rest:]
        path.write_bytes(content)
        found = cache_of_it.get("key")
        assert found == (_BODY if content == whole else None)
        assert path.exists() == (found is not None)


@cache
def _pools() -> tuple[int, dict[int, Pool]]:
    """The address of a kernel that adds 1 for each unit, and pools by their number of threads."""
    target = host_target()
    if isinstance(target, str):
        raise KernelError(target)
    made = Library(module_that_counts(), target, ObjectCache())
    _kept.append(made)
    return made.address("count"), {count: Pool(count, target, ObjectCache()) for count in (1, 2, 5)}


_kept: list[Library] = []
"""Whose code is in use."""


def _check_pool(example: tuple[int, list[tuple[int, int]], int]) -> None:
    num_threads, sizes, num_runs = example
    if isinstance(host_target(), str):
        return
    address, pools = _pools()
    arrays = [(ctypes.c_int64 * max(1, units))() for units, _ in sizes]
    jobs = [
        Job(address, units, chunk, [ctypes.addressof(numbers)])
        for (units, chunk), numbers in zip(sizes, arrays, strict=True)
    ]
    program = Program(pools[num_threads], jobs)
    for _ in range(num_runs):
        program.run()
    for (units, _), numbers in zip(sizes, arrays, strict=True):
        assert list(numbers[:units]) == [num_runs] * units


@st.composite
def _products(draw: st.DrawFn) -> tuple[str, int, int, list[list[float]]]:
    """Format, width, columns and the beginnings of rows, which go on as they begin."""
    rows = draw(st.lists(st.lists(_FLOATS, min_size=1, max_size=5), min_size=1, max_size=FEW_ROWS))
    return draw(st.sampled_from(_FORMATS)), 32 * draw(st.integers(1, 9)), draw(st.integers(1, 70)), rows


def _check_product(example: tuple[str, int, int, list[list[float]]]) -> None:
    form, width, columns, beginnings = example
    if cpu_kernels() is None:
        return
    weight: Any = torch.randn(columns, width, generator=torch.Generator().manual_seed(width + columns))
    weight = quantize(weight, int(form[3]), 32) if form.startswith("int") else weight.to(getattr(torch, form))
    linear = CpuLinear(weight)
    rows = torch.tensor([[row[i % len(row)] for i in range(width)] for row in beginnings])
    together = linear(rows)
    for row, result in zip(rows, together, strict=True):
        alone = linear(row[None])[0]
        same = (alone == result) | (alone.isnan() & result.isnan())
        assert bool(same.all()), "a row that others change"
        largest = float(row.abs().max())
        if not math.isfinite(largest):
            assert not bool(result.isfinite().any()), "a row of which something is no number has numbers"
        elif largest < 1e30:
            dense = weight.double() if isinstance(weight, torch.Tensor) else weight.dequantized(torch.float64)
            exact = row.double() @ dense.T
            room = 0.02 * float(row.double().abs().max()) * dense.abs().sum(dim=1) + 1e-30
            assert bool(((result - exact).abs() <= room).all()), "numbers that are far off"


@st.composite
def _mixtures(draw: st.DrawFn) -> tuple[int, int, int, list[tuple[list[float], list[float]]]]:
    """Bits, experts, experts of a row, and of rows the beginnings of their logits and of themselves."""
    num_experts = draw(st.integers(1, 20))
    beginnings = st.lists(_FLOATS, min_size=1, max_size=5)
    rows = draw(st.lists(st.tuples(beginnings, beginnings), min_size=1, max_size=40))
    return draw(st.sampled_from((8, 4))), num_experts, draw(st.integers(1, num_experts)), rows


def _check_mixture(example: tuple[int, int, int, list[tuple[list[float], list[float]]]]) -> None:
    bits, num_experts, per_token, beginnings = example
    kernels = cpu_kernels()
    if kernels is None:
        return
    into, out = (_experts(bits, num_experts, *shape, kernels.zero_of_8_bits) for shape in ((64, 64), (64, 32)))
    mixture = CpuMixture(into, out, per_token, sums_to_one=True, gate=SILU)
    logits, rows = (
        torch.tensor([[row[part][i % len(row[part])] for i in range(width)] for row in beginnings])
        for part, width in ((0, num_experts), (1, 64))
    )
    memory = MixtureMemory(len(rows), per_token, into, out)

    def mixed(some: slice) -> torch.Tensor:
        its_rows, num_rows = rows[some].contiguous(), len(rows[some])
        memory.logits[:num_rows] = logits[some]
        output = torch.empty(num_rows, 64)
        to, place = Mixed(Rows(output.data_ptr(), 64)), Rows(its_rows.data_ptr(), 64)
        Program(kernels.pool, [job for _, job in mixture.jobs(kernels, memory, place, num_rows, to)]).run()
        return output

    together = mixed(slice(None))
    for i, row in enumerate(rows):
        alone = mixed(slice(i, i + 1))[0]
        assert bool(((alone == together[i]) | (alone.isnan() & together[i].isnan())).all()), "a row others change"
        if not bool(row.isfinite().all()):
            assert not bool(alone.isfinite().any()), "a row of which something is no number has numbers"


def _experts(bits: int, num_experts: int, rows: int, width: int, zero_of_8_bits: int) -> ExpertTables:
    generator = torch.Generator().manual_seed(bits + num_experts)
    weights = (quantize(torch.randn(rows, width, generator=generator), bits, 32) for _ in range(num_experts))
    return ExpertTables([Product(packed_weight(weight, zero_of_8_bits), None) for weight in weights])


@st.composite
def _heads(draw: st.DrawFn) -> tuple[str, int, int, list[list[float]]]:
    """Type, width, columns and the beginnings of rows."""
    rows = draw(st.lists(st.lists(_FLOATS, min_size=1, max_size=9), min_size=1, max_size=12))
    return draw(st.sampled_from(_FORMATS[:2])), GROUP * draw(st.integers(1, 4)), draw(st.integers(200, 900)), rows


def _check_likeliest(example: tuple[str, int, int, list[list[float]]]) -> None:
    form, width, columns, beginnings = example
    kernels = cpu_kernels()
    if kernels is None:
        return
    weight = torch.randn(columns, width, generator=torch.Generator().manual_seed(width + columns))
    head = Product(weight.to(getattr(torch, form)), None)
    rows = torch.tensor([[row[i % len(row)] for i in range(width)] for row in beginnings])
    num_rows, inputs, logits = len(rows), ProductInputs.for_rows(len(rows), width), torch.empty(len(rows), columns)
    place, output = Rows(rows.data_ptr(), width), Rows(logits.data_ptr(), columns)
    tokens = LikeliestTokens(kernels, head, None, place, inputs, logits)
    assert tokens.is_ready()  # so small a head is copied at once
    Program(kernels.pool, tokens.jobs(num_rows)).run()
    found = tokens.find(num_rows)
    if found is None:
        return
    Program(kernels.pool, [job for _, job in product_jobs(kernels, (head,), place, output, num_rows, inputs)]).run()
    for dtype in (torch.float32, torch.bfloat16):
        chosen = found.token_ids[found.logits.to(dtype).max(dim=1).indices]
        assert torch.equal(chosen, logits.to(dtype).max(dim=1).indices), "another token"
    assert torch.equal(found.logits, logits[:, found.token_ids]), "other bits"


TARGETS = (
    Target("kernel files", _damages(), _check_file),
    Target(
        "kernel threads",
        st.tuples(
            st.sampled_from((1, 2, 5)),
            st.lists(st.tuples(st.integers(0, 70), st.integers(-3, 99)), max_size=12),
            st.integers(1, 4),
        ),
        _check_pool,
    ),
    Target("kernel numbers", _products(), _check_product, seconds=20.0),
    Target("mixtures of experts", _mixtures(), _check_mixture, seconds=20.0),
    Target("most likely tokens", _heads(), _check_likeliest, seconds=20.0),
)
