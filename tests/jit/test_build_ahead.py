import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pagedchat.jit import build_ahead
from pagedchat.jit import builder as builder_module
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.jit.compiler import Cubin
from pagedchat.jit.variant import Variant
from tests.jit.kernels import SCALE_BY_2, builder_in


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> "Compiler":
    found = Compiler()
    monkeypatch.setattr(builder_module, "compile_kernel", found)
    return found


class Compiler:
    """Waits until it is allowed to begin; notes what it was asked for."""

    def __init__(self) -> None:
        self.may_begin = threading.Event()
        self.asked: list[Variant] = []

    def __call__(self, _source: object, variant: Variant, *_where: object) -> Cubin:
        self.asked.append(variant)
        assert self.may_begin.wait(10)
        return Cubin(b"code", (), 0.0)


def test_nobody_waits_and_all_are_built(root: Path, compiler: Compiler) -> None:
    builder = builder_in(root)
    variants = [Variant.of("scale", FACTOR=factor) for factor in range(5)]
    build = BuildAhead(builder, [*variants, *variants], "sm_90")
    assert not build.wait(0.01)
    compiler.may_begin.set()
    assert build.wait(10)
    assert sorted(map(str, compiler.asked)) == sorted(map(str, variants))
    assert all(builder.build(variant, "sm_90").cached for variant in variants)


def test_threads_of_python_take_short_turns_while_kernels_are_built(root: Path, compiler: Compiler) -> None:
    before = sys.getswitchinterval()
    assert before > 1e-3
    builds = [BuildAhead(builder_in(root), [SCALE_BY_2], "sm_90") for _ in range(2)]
    while len(compiler.asked) < 2:
        threading.Event().wait(0.001)
    assert sys.getswitchinterval() == pytest.approx(5e-4)
    compiler.may_begin.set()
    assert all(build.wait(10) for build in builds)
    for thread in threading.enumerate():
        if thread.name == "build-ahead":
            thread.join()
    assert sys.getswitchinterval() == pytest.approx(before)


def test_who_asks_meanwhile_takes_what_is_being_compiled(root: Path, compiler: Compiler) -> None:
    builder = builder_in(root)
    build = BuildAhead(builder, [SCALE_BY_2], "sm_90")
    found: list[bool] = []
    asking = threading.Thread(target=lambda: found.append(builder.build(SCALE_BY_2, "sm_90").cached))
    asking.start()
    compiler.may_begin.set()
    asking.join()
    assert build.wait(10)
    assert len(compiler.asked) == 1
    assert len(found) == 1


def test_what_cannot_be_built_is_left_to_who_asks_for_it(root: Path) -> None:
    builder = builder_in(root)
    (root / "kernels" / "broken.cu").write_text("int f( {}\n")
    wanted = [Variant.of("broken"), Variant.of("missing"), SCALE_BY_2]
    assert BuildAhead(builder, wanted, "sm_90").wait(60)
    assert builder.build(SCALE_BY_2, "sm_90").cached
    assert builder.build(Variant.of("broken"), "sm_90").error is not None


def test_why_one_could_not_be_built_is_known(root: Path) -> None:
    builder = builder_in(root)
    build = BuildAhead(builder, [Variant.of("missing"), SCALE_BY_2], "sm_90")
    assert build.wait(60)
    assert build.failure is not None
    assert "missing" in build.failure.message
    fine = BuildAhead(builder, [SCALE_BY_2], "sm_90")
    assert fine.wait(60)
    assert fine.failure is None


def test_beside_others_fewer_threads_of_a_low_priority_build(
    root: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ahead, "num_cores", lambda: 6)
    lowered: list[int] = []
    monkeypatch.setattr(build_ahead.os, "setpriority", lambda _which, thread, _niceness: lowered.append(thread))
    variants = [Variant.of("scale", FACTOR=factor) for factor in range(5)]
    before = threading.active_count()
    build = BuildAhead(builder_in(root), variants, "sm_90", quietly=True)
    assert threading.active_count() - before == 2
    compiler.may_begin.set()
    assert build.wait(10)
    assert len(set(lowered)) == 2
    assert threading.get_native_id() not in lowered


def test_nothing_to_build_is_done_at_once(root: Path) -> None:
    assert BuildAhead(builder_in(root), [], "sm_90").wait(0)


def test_program_ends_with_the_kernel_at_hand() -> None:
    """Whatever else waits is not compiled any more."""
    program = """
import threading, time
from pagedchat.jit.build_ahead import BuildAhead

class Builder:
    def build(self, variant, architecture):
        threading.main_thread().join()
        time.sleep(0.2)
        print("built", flush=True)

import pagedchat.jit.build_ahead as ahead
ahead.num_cores = lambda: 1
BuildAhead(Builder(), range(50), "sm_90")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "built\n"
