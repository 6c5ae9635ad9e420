"""Kernels in another process, as the emulator of arm64 has them: here for this very processor, without an emulator;
and for arm64 where it is there.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from pagedchat.jit.cpu import pool
from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.target import CpuTarget, host_target
from pagedchat.ops.cpu import kernels as kernels_module
from pagedchat.ops.cpu import linear as linear_module
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.linear import CpuLinear
from tools.arm64 import machine
from tools.arm64.program import ForeignPool, ForeignProgram


@pytest.fixture
def host() -> CpuTarget:
    target = host_target()
    if isinstance(target, str) or shutil.which("gcc") is None:
        pytest.skip("nothing to make kernels with")
    return target


@contextmanager
def away(host: CpuTarget) -> Iterator[CpuKernels]:
    """Kernels of this processor in a process of their own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(machine, "_names", [])
        patched.setattr(machine, "_objects", [])
        patched.setattr(kernels_module, "Library", machine.ForeignLibrary)
        patched.setattr(kernels_module, "Pool", ForeignPool)
        patched.setattr(linear_module, "Program", ForeignProgram)
        made = CpuKernels(host, 2, ObjectCache())
        assert made.pool.num_threads == 2  # it has all kernels, which are linked now
        there = machine.Machine("gcc", "")
        patched.setattr(ForeignProgram, "machine", there)
        yield made
        there.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_another_process_are_those_of_this_one(host: CpuTarget, dtype: torch.dtype) -> None:
    weight, bias, rows = torch.randn(37, 70).to(dtype), torch.randn(37), torch.randn(11, 70)
    here = CpuKernels(host, 2, ObjectCache())
    expected = CpuLinear(weight, bias, kernels=here)(rows)
    here.pool.close()
    with away(host) as there:
        assert torch.equal(CpuLinear(weight, bias, kernels=there)(rows), expected)


def test_what_no_tensor_holds_is_refused(host: CpuTarget) -> None:
    with away(host) as there:
        for address in (1 << 47, 1 << 32):
            job = pool.Job(there.address("dense_f32"), 1, 1, (address,))
            with pytest.raises(RuntimeError, match="which no tensor holds"):
                ForeignProgram(ForeignPool(1), [job]).run()


def test_what_is_missing_is_named() -> None:
    with pytest.raises(SystemExit, match="no-such-compiler and no-such-emulator are missing"):
        machine.Machine("no-such-compiler", "no-such-emulator")


def test_kernels_of_arm64_are_right() -> None:
    if shutil.which("qemu-aarch64") is None or shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("no emulator of arm64")
    wanted = [
        "-p",
        "tools.arm64.plugin",
        "-p",
        "no:xdist",
        "tests/ops/cpu/test_linear.py",
        "-k",
        "exact or rounding",
    ]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *wanted], capture_output=True, text=True, check=False, env=own
    )
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert "neoverse" not in ran.stdout  # it is named where something failed
    assert " passed" in ran.stdout
