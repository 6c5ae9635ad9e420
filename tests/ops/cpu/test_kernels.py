"""The kernels of a process and its threads."""

from pathlib import Path

import pytest

from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.target import host_target
from pagedchat.ops.cpu import kernels as module
from pagedchat.ops.cpu.kernels import CpuKernels, LateKernelError


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


def test_only_what_is_wanted_is_compiled(tmp_path: Path) -> None:
    target = host_target()
    if isinstance(target, str):
        pytest.skip(f"no CPU kernels, since {target}")

    def num_kept() -> int:
        return len(list(tmp_path.iterdir()))

    kernels = CpuKernels(target, 1, ObjectCache(tmp_path))
    assert num_kept() == 1  # what threads do
    assert kernels.address("heads_f32")
    assert kernels.address("heads_int8")
    assert num_kept() == 2
    assert kernels.address("attention_int8")
    assert num_kept() == 3
    with pytest.raises(KeyError, match="attention_f64"):
        kernels.address("attention_f64")
    assert num_kept() == 3


def test_each_kernel_is_in_one_part_and_the_usual_ones_are_made_beforehand() -> None:
    target = host_target()
    if isinstance(target, str):
        pytest.skip(f"no CPU kernels, since {target}")
    kernels = CpuKernels(target, 1, ObjectCache())
    names = [name for part in (*kernels._usual, *kernels._others) for name in part.names]
    assert len(names) == len({*names}) > 50
    kernels.compile_usual()
    made = {
        name for part in (*kernels._usual, *kernels._others) for name in part.names if part._library is not None
    }
    whole = "bf16" if target.multiplies_bf16 else "f32"
    assert {"int8", "rms_int8", "silu_gated_int8", f"attention_{whole}", f"heads_{whole}", "likely_columns"} <= made
    assert {"int4", "attention_fp8", "attention_int8"}.isdisjoint(made)


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


def test_a_kernel_that_cannot_be_made_later_is_said_and_there_are_none_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = host_target()
    if isinstance(target, str):
        pytest.skip(f"no CPU kernels, since {target}")
    kernels = CpuKernels(target, 1, ObjectCache(tmp_path))

    def fail(*_: object) -> None:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(module, "Library", fail)
    try:
        with pytest.raises(LateKernelError) as raised:
            kernels.address("heads_f32")
        why = "LLVM could not make them (out of registers)"
        assert str(raised.value) == f"CPU kernels are missing, since {why}."
        assert module.cpu_kernels() is None
        assert module.objection() == why
    finally:
        module._failed.clear()
        module._make.cache_clear()
