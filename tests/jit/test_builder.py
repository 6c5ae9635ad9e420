"""Compiling for real, a kernel of a few lines; needs no GPU."""

import sys
import threading
from pathlib import Path

import pytest

from pagedchat.errors import KernelCompileError, KernelError
from pagedchat.jit import builder as builder_module
from pagedchat.jit.builder import Build, KernelBuilder, compile_all
from pagedchat.jit.cache import KernelCache
from pagedchat.jit.compiler import Cubin
from pagedchat.jit.variant import Variant
from tests.jit.kernels import MORE, SCALE_BY_2, builder_in, write_kernels


def test_kernel_is_compiled_once_and_then_comes_from_disk(root: Path) -> None:
    first = builder_in(root).build(SCALE_BY_2, "sm_90")
    second = builder_in(root).build(SCALE_BY_2, "sm_90")
    assert (first.cached, second.cached) == (False, True)
    assert first.cubin is not None
    assert first.cubin == second.cubin
    assert first.cubin.code.startswith(b"\x7fELF")


def test_what_was_compiled_in_another_folder_will_do_if_that_is_said(root: Path, tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "shared")
    elsewhere = write_kernels(tmp_path / "elsewhere")
    found = [
        KernelBuilder(folder, cache, anywhere=anywhere).build(SCALE_BY_2, "sm_90").cached
        for folder, anywhere in ((elsewhere, True), (root / "kernels", True), (root / "kernels", False))
    ]
    assert found == [False, True, False]
    (elsewhere / "more.cuh").write_text(MORE + "constexpr int EVEN_MORE = 2;\n")
    assert not KernelBuilder(elsewhere, cache, anywhere=True).build(SCALE_BY_2, "sm_90").cached


def test_report_has_registers_and_no_warnings(root: Path) -> None:
    cubin = builder_in(root).build(SCALE_BY_2, "sm_80").cubin
    assert cubin is not None
    [usage] = cubin.usage
    assert usage.entry == "scale"
    assert 4 <= usage.registers <= 64
    assert (usage.shared_bytes, usage.spill_bytes) == (0, 0)
    assert cubin.warnings == ""
    assert cubin.seconds > 0


def test_same_builder_keeps_cubins_even_if_the_disk_does_not(root: Path) -> None:
    (root / "cache").write_text("in the way")
    builder = builder_in(root)
    assert not builder.build(SCALE_BY_2, "sm_90").cached
    assert builder.build(SCALE_BY_2, "sm_90").cached


def test_damaged_entry_is_compiled_again(root: Path) -> None:
    first = builder_in(root).build(SCALE_BY_2, "sm_90")
    [path] = (root / "cache").iterdir()
    path.write_bytes(path.read_bytes()[:-10])
    again = builder_in(root).build(SCALE_BY_2, "sm_90")
    assert not again.cached
    assert first.cubin is not None
    assert again.cubin is not None
    assert again.cubin.code == first.cubin.code
    assert builder_in(root).build(SCALE_BY_2, "sm_90").cached


@pytest.mark.parametrize("name", ["scale.cu", "numbers.cuh", "more.cuh"])
def test_change_of_source_or_any_header_compiles_again(name: str, root: Path) -> None:
    builder_in(root).build(SCALE_BY_2, "sm_90")
    with (root / "kernels" / name).open("a") as file:
        file.write("// changed\n")
    assert not builder_in(root).build(SCALE_BY_2, "sm_90").cached


def test_change_of_constants_or_architecture_compiles_again(root: Path) -> None:
    builder_in(root).build(SCALE_BY_2, "sm_90")
    assert not builder_in(root).build(Variant.of("scale", FACTOR=3), "sm_90").cached
    assert not builder_in(root).build(SCALE_BY_2, "sm_80").cached


def test_error_names_file_and_line_and_carries_the_log(root: Path) -> None:
    with (root / "kernels" / "more.cuh").open("a") as file:
        file.write("constexpr int WRONG = nonsense;\n")
    build = builder_in(root).build(SCALE_BY_2, "sm_90")
    assert build.cubin is None
    error = build.error
    assert isinstance(error, KernelCompileError)
    place = f"{root / 'kernels' / 'more.cuh'}(3)"
    assert error.message == (
        f'Kernel scale FACTOR=2 does not compile for sm_90: {place}: identifier "nonsense" is undefined'
    )
    assert f"{place}: error: " in error.log
    assert "1 error detected in the compilation of" in error.log


def test_error_in_the_kernel_itself_names_its_file(root: Path) -> None:
    path = root / "kernels" / "scale.cu"
    path.write_text(path.read_text().replace("const long long i", "const int64_ i"))
    error = builder_in(root).build(SCALE_BY_2, "sm_90").error
    assert error is not None
    assert f"{path}(5): " in error.message


def test_missing_header_is_reported_where_it_is_included(root: Path) -> None:
    (root / "kernels" / "more.cuh").unlink()
    error = builder_in(root).build(SCALE_BY_2, "sm_90").error
    assert error is not None
    assert f"{root / 'kernels' / 'numbers.cuh'}(2): " in error.message
    assert "more.cuh" in error.message


def test_kernel_that_does_not_exist_is_one_sentence(root: Path) -> None:
    with pytest.raises(KernelError, match=r"Kernel file .*nothing\.cu cannot be read: .*No such file"):
        builder_in(root).build(Variant.of("nothing"), "sm_90")


def test_results_come_in_order_and_one_failure_leaves_the_others(root: Path) -> None:
    (root / "kernels" / "broken.cu").write_text("int f( {}\n")
    wanted = [(Variant.of("scale", FACTOR=f), a) for f in (1, 2) for a in ("sm_75", "sm_120")]
    wanted.insert(1, (Variant.of("broken"), "sm_90"))
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int, build: Build) -> None:
        assert build.architecture in ("sm_75", "sm_90", "sm_120")
        seen.append((done, total))

    builds = builder_in(root).build_all(wanted, progress)
    assert [(build.variant, build.architecture) for build in builds] == wanted
    assert [build.cubin is None for build in builds] == [False, True, False, False, False]
    assert seen == [(i, 5) for i in range(1, 6)]


def test_two_builders_at_a_time_agree(root: Path) -> None:
    results: list[Build] = []
    wanted = [Variant.of("scale", FACTOR=f) for f in range(3)]

    def work() -> None:
        results.extend(builder_in(root).build_all([(variant, "sm_90") for variant in wanted]))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert len({build.cubin.code for build in results if build.cubin}) == 3
    assert all(builder_in(root).build(variant, "sm_90").cached for variant in wanted)


def test_nothing_more_is_begun_when_the_program_ends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Variant] = []
    ended = threading.Thread(target=lambda: None)

    def compiled(_source: object, variant: Variant, *_where: object) -> Cubin:
        asked.append(variant)
        monkeypatch.setattr(threading, "main_thread", lambda: ended)
        return Cubin(b"code", (), 0.0)

    monkeypatch.setattr(builder_module, "compile_kernel", compiled)
    wanted = [(Variant.of("scale", FACTOR=factor), "sm_90") for factor in range(5)]
    with pytest.raises(KernelError, match="The program is ending"):
        builder_in(root).build_all(wanted, workers=1)
    assert asked == [wanted[0][0]]


def test_compile_all_raises_what_does_not_compile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder_module, "default_builder", builder_in(root))
    assert len(compile_all([SCALE_BY_2], "sm_90")) == 1
    (root / "kernels" / "broken.cu").write_text("int f( {}\n")
    with pytest.raises(KernelCompileError, match=r"Kernel broken does not compile for sm_90: .*broken\.cu\(1\)"):
        compile_all([Variant.of("broken")], "sm_90")


def test_without_cudas_packages_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(KernelError) as caught:
        KernelBuilder(tmp_path).build_all([(SCALE_BY_2, "sm_90")])
    assert caught.value.message == "CUDA's Python packages are not installed."
    assert caught.value.hint == (
        "Install them: pip install "
        '"cuda-python>=13" "cuda-core>=1.2" "nvidia-cuda-nvrtc>=13" "nvidia-cuda-runtime>=13"'
    )


def test_on_a_mac_the_error_does_not_ask_for_packages_that_there_are_none_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(KernelError, match=r"^CUDA kernels need Linux; on this system chats run on the CPU\.$"):
        KernelBuilder(tmp_path).build_all([(SCALE_BY_2, "sm_90")])
