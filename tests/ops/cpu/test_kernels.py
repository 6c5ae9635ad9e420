"""The kernels of a process and its threads."""

from pathlib import Path

import pytest

from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.target import host_target
from pagedchat.ops.cpu import kernels as module
from pagedchat.ops.cpu.kernels import CpuKernels


@pytest.mark.parametrize(("most", "threads"), [(1, 1), (2, 2), (9, 3), (0, 1)])
def test_threads_are_no_more_than_was_said_before_they_began(most: int, threads: int) -> None:
    target = host_target()
    if isinstance(target, str):
        pytest.skip(f"no CPU kernels, since {target}")
    kernels = CpuKernels(target, 3, ObjectCache())
    kernels.limit_threads(most)
    assert kernels.pool.num_threads == threads
    kernels.limit_threads(1)
    assert kernels.pool.num_threads == threads
    kernels.pool.close()


@pytest.mark.parametrize("reason", ["the processor lacks avx2", "LLVM cannot be had"])
def test_without_kernels_the_reason_is_kept(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "host_target", lambda: reason)
    module._make.cache_clear()
    try:
        assert module.cpu_kernels() is None
        assert module.objection() == reason
    finally:
        module._make.cache_clear()


def test_a_compiler_that_fails_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(host_target(), str):
        pytest.skip("no CPU kernels")

    def fail(*_: object) -> None:
        raise RuntimeError("out of registers")

    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "Library", fail)
    module._make.cache_clear()
    try:
        assert module.cpu_kernels() is None
        assert "out of registers" in module.objection()
    finally:
        module._make.cache_clear()
