"""`pagedchat doctor` on machines of all kinds; what is compiled here is a kernel of a few lines."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagedchat.cli import main as cli
from pagedchat.cli.options import parse_args
from pagedchat.doctor import compile_plan, kernel_text, main
from pagedchat.doctor import machine as machine_module
from pagedchat.doctor.compile_plan import asked_for, plan_compiling
from pagedchat.doctor.kernel_text import failures_text, kernels_text, limits_text, matrix_text, warnings_text
from pagedchat.doctor.machine import Machine, Torch, look_at_machine, look_at_torch
from pagedchat.doctor.machine_text import machine_text, torch_text
from pagedchat.doctor.progress import ProgressLine
from pagedchat.errors import KernelCompileError, KernelError
from pagedchat.jit.architecture import ARCHITECTURES
from pagedchat.jit.builder import Build
from pagedchat.jit.cache import KernelCache
from pagedchat.jit.compiler import Cubin
from pagedchat.jit.driver import Gpu
from pagedchat.jit.kernel_file import KernelFile, Limit, Use
from pagedchat.jit.resource_usage import ResourceUsage
from pagedchat.jit.toolchain import Toolchain
from pagedchat.jit.variant import Variant
from pagedchat.ops.catalogue import covering_set
from pagedchat.resources import resource_dir
from tests.jit.kernels import builder_in, write_kernels

needs_compiler = pytest.mark.skipif(sys.platform != "linux", reason="CUDA's packages are for Linux")

KERNELS = resource_dir("kernels")
SCALE = KernelFile("scale", ("scale",), Use.ANY_MODEL, {"FACTOR": (1, 2)})
OLD_FLAG = KernelFile(
    "old",
    ("old",),
    Use.ANY_MODEL,
    {"FLAG": (0, 1)},
    limits=(Limit("it has no flag", frozenset({"sm_75"}), where={"FLAG": [1]}),),
)
MACHINE = Machine(
    pagedchat="1.2",
    system="Linux x86_64",
    python="3.12.1",
    driver="580.82.07",
    cuda="13.0",
    gpus=(Gpu(0, "NVIDIA H200", (9, 0), 140 << 30, 132, 227 << 10),),
    no_gpu="",
    packages={"cuda-core": "1.2.0", "cuda-python": None},
    toolchain=Toolchain("13.0", Path("/lib/libnvrtc.so.13"), 1, Path("/include"), "13.1"),
    no_toolchain="",
    cache_folder=Path("/cache/kernels"),
    cache_entries=3,
    cache_bytes=3 << 20,
    no_cache="",
    cpu="AVX2 (haswell), LLVM 22.1.0, 4 threads",
    no_cpu="",
)
WITHOUT_CUDA = replace(
    MACHINE,
    cpu="",
    no_cpu="LLVM cannot be had",
    driver=None, cuda=None, gpus=(), no_gpu="There is no NVIDIA driver.", toolchain=None,
    no_toolchain="NVRTC was not found. Install it.", cache_entries=1,
)  # fmt: skip


@pytest.fixture
def small_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `scale`."""
    monkeypatch.setattr(main, "CATALOGUE", (SCALE,))
    monkeypatch.setattr(compile_plan, "covering_set", SCALE.covering)
    monkeypatch.setattr(kernel_text, "CATALOGUE", (SCALE,))


def doctor(root: Path, *argv: str) -> int:
    return main.run_doctor(parse_args(["doctor", *argv]), builder_in(root))


def built(
    stem: str, architecture: str = "sm_90", spills: int = 0, registers: int = 40, cached: bool = False
) -> Build:
    usage = ResourceUsage(stem, registers, 2048, 0, spills, 0)
    return Build(Variant.of(stem, FLAG=0), architecture, Cubin(b"", (usage,), 0.5), cached=cached)


def failed(stem: str, architecture: str = "sm_90") -> Build:
    error = KernelCompileError(f"Kernel {stem} does not compile.", log="k.cu(1): error: it is wrong")
    return Build(Variant.of(stem, FLAG=1), architecture, None, error)


# --- the machine --------------------------------------------------------------------------------------


def test_everything_about_the_machine_is_shown() -> None:
    assert machine_text(MACHINE).splitlines() == [
        "pagedchat 1.2 on Linux x86_64, Python 3.12.1",
        "",
        "driver        NVIDIA 580.82.07, CUDA up to 13.0",
        "GPU 0         NVIDIA H200, sm_90, 140 GiB, 132 multiprocessors with 227 KiB of shared memory",
        "packages      cuda-core 1.2.0, cuda-python not installed",
        "NVRTC         13.0, /lib/libnvrtc.so.13",
        "CUDA headers  13.1, /include",
        "CPU kernels   AVX2 (haswell), LLVM 22.1.0, 4 threads; float32, bfloat16, int8 and int4",
        "kernel cache  /cache/kernels, 3 entries, 3 MiB",
    ]


def test_machine_without_cuda_is_told_so_plainly() -> None:
    assert machine_text(WITHOUT_CUDA).splitlines()[2:] == [
        "driver        none",
        "GPU           none. There is no NVIDIA driver. Chats run on the CPU.",
        "packages      cuda-core 1.2.0, cuda-python not installed",
        "NVRTC         NVRTC was not found. Install it.",
        "CPU kernels   none, since LLVM cannot be had; on a CPU torch computes all.",
        "kernel cache  /cache/kernels, 1 entry, 3 MiB",
    ]


def test_folder_for_kernels_that_is_not_used_says_why() -> None:
    text = machine_text(replace(MACHINE, no_cache="other users may write to it"))
    assert (
        "kernel cache  /cache/kernels is not used, since other users may write to it. Set PAGEDCHAT_CACHE" in text
    )


@pytest.mark.parametrize(
    ("torch", "line"),
    [
        (Torch("2.11.0+cu130", "13.0", True), "torch         2.11.0+cu130, built for CUDA 13.0, sees the GPU"),
        (Torch("2.13.0+cpu", None, False), "torch         2.13.0+cpu, built without CUDA, sees no GPU"),
        (Torch(None, None, False, "No module"), "torch         cannot be imported: No module"),
    ],
)
def test_torch_is_one_line(torch: Torch, line: str) -> None:
    assert torch_text(torch) == line


def test_looking_finds_this_python_and_its_torch(tmp_path: Path) -> None:
    machine = look_at_machine(KernelCache(tmp_path))
    assert machine.python == ".".join(map(str, sys.version_info[:3]))
    assert (machine.cache_entries, machine.cache_bytes) == (0, 0)
    assert bool(machine.gpus) == (machine.no_gpu == "")
    assert (machine.toolchain is None) == (machine.no_toolchain != "")
    assert look_at_torch().version is not None


def test_mac_is_told_that_kernels_need_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(sys, "platform", "darwin")
    machine_module.driver._driver.cache_clear()
    machine = look_at_machine(KernelCache(tmp_path))
    machine_module.driver._driver.cache_clear()
    sentence = "CUDA kernels need Linux; on this system chats run on the CPU."
    assert (machine.no_gpu, machine.no_toolchain) == (sentence, sentence)
    assert look_at_torch().version is not None


def test_torch_that_cannot_be_imported_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert look_at_torch().version is None


def test_names_never_reach_the_terminal_as_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = replace(WITHOUT_CUDA, cache_folder=Path("/cache\x1b[2J\x9b31m"), system="Linux \u202e")
    monkeypatch.setattr(main, "look_at_machine", lambda _: evil)
    monkeypatch.setattr(main, "look_at_torch", lambda: Torch(None, None, False, "\x1b]0;title\x07broken"))
    assert doctor(tmp_path) == 0
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert "cannot be imported: broken" in shown


@needs_compiler
@pytest.mark.usefixtures("small_catalogue")
def test_doctor_without_a_gpu_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_gpus = (None, (), "There is no NVIDIA driver.")
    monkeypatch.setattr(machine_module, "_look_for_gpus", lambda: no_gpus)
    assert doctor(tmp_path) == 0
    output = capsys.readouterr().out
    assert "GPU           none. There is no NVIDIA driver. Chats run on the CPU." in output
    assert "pagedchat doctor --compile" in output
    assert doctor(tmp_path, "--json") == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["machine"]["gpus"], values["kernels"]) == ([], [])
    assert values["torch"]["version"]


@needs_compiler
@pytest.mark.usefixtures("small_catalogue")
def test_doctor_with_a_gpu_shows_every_kernel_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kernels(tmp_path / "kernels")
    monkeypatch.setattr(machine_module, "_look_for_gpus", lambda: ("13.0", MACHINE.gpus, ""))
    assert doctor(tmp_path) == 0
    *_, title, header, line = capsys.readouterr().out.splitlines()
    assert title == "One variant of every kernel for sm_90:"
    assert header.split() == ["kernel", "registers", "shared", "spilled", "compiled", "in", "constants"]
    assert line.split()[0] == "scale"
    assert line.endswith(" s  FACTOR=1")
    assert doctor(tmp_path) == 0
    assert "  from cache  FACTOR=1" in capsys.readouterr().out
    (tmp_path / "kernels" / "scale.cu").write_text("int f( {}\n")
    assert doctor(tmp_path, "--json") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["kernels"][0]["ok"] is False
    assert "scale.cu(1)" in captured.err


# --- every kernel -------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.usefixtures("small_catalogue")
def test_compile_builds_every_architecture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_kernels(tmp_path / "kernels")
    assert doctor(tmp_path, "--compile", "--json") == 0
    captured = capsys.readouterr()
    values = json.loads(captured.out)
    assert values["architectures"] == list(ARCHITECTURES)
    assert values["failed"] == 0
    found = [(v["kernel"], v["architecture"], v["constants"]["FACTOR"]) for v in values["variants"]]
    factors = {"sm_75": "12", "sm_90": "12", "sm_89": "2"}
    assert found == [("scale", name, factor) for name in ARCHITECTURES for factor in factors.get(name, "1")]
    assert all(v["ok"] and v["entries"][0]["registers"] > 0 and v["seconds"] > 0 for v in values["variants"])
    assert "compiled 9 of 9 variants, scale for " in captured.err


def test_relatives_take_turns_and_together_compile_what_all_of_them_can() -> None:
    planned = plan_compiling(ARCHITECTURES)
    for relatives in (["sm_75"], ["sm_90"], ["sm_86", "sm_89", "sm_100", "sm_120"]):
        wanted = set.intersection(*(set(covering_set(name)) for name in relatives))
        assert wanted <= {variant for variant, name in planned if name in relatives}
    for name in ARCHITECTURES:
        kernels = {variant.stem for variant, on in planned if on == name}
        assert kernels == {variant.stem for variant in covering_set(name)}


def test_all_variants_are_compiled_for_an_architecture_to_which_a_kernel_looks_as_to_none_before() -> None:
    """So they are for sm_90, which sees all there is; sm_80 may see nothing that sm_90 does not."""
    planned = set(plan_compiling(ARCHITECTURES))
    for variant in covering_set("sm_80"):
        looks_different = max(asked_for(KERNELS, variant.stem, {}), default=0) > 80
        assert not looks_different or (variant, "sm_80") in planned


def test_kernels_ask_for_architectures_in_one_form_and_for_these_alone() -> None:
    """sm_89 is no relative of its own: what it sees and sm_80 does not, sm_90 sees too."""
    texts = [path.read_text(encoding="utf-8") for path in KERNELS.rglob("*.cu*")]
    words = sum(text.count("__CUDA_ARCH__") for text in texts)
    asked = [int(number) for text in texts for number in re.findall(r"__CUDA_ARCH__ >= (\d+)\b", text)]
    assert words == len(asked) > 0
    assert set(asked) == {800, 890, 900}


def test_architecture_asked_for_alone_gets_its_whole_covering_set() -> None:
    assert plan_compiling(["sm_86"]) == [(variant, "sm_86") for variant in covering_set("sm_86")]


@needs_compiler
@pytest.mark.usefixtures("small_catalogue")
def test_compile_of_one_architecture_is_a_small_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_kernels(tmp_path / "kernels")
    assert doctor(tmp_path, "--compile", "--arch", "sm_80", "--arch", "sm_80") == 0
    header, line, *_, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["kernel", "sm_80", "compiled", "in"]
    assert line.split()[0] == "scale"
    assert last.startswith("2 variants in ")
    assert last.endswith(" s, 0 of them from the cache; 0 failed")
    assert doctor(tmp_path, "--compile", "--arch", "sm_80") == 0
    assert "2 of them from the cache" in capsys.readouterr().out


@needs_compiler
@pytest.mark.usefixtures("small_catalogue")
def test_kernel_that_does_not_compile_fails_with_the_compilers_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_kernels(tmp_path / "kernels")
    (folder / "more.cuh").write_text("#error it is wrong\n")
    assert doctor(tmp_path, "--compile", "--arch", "sm_90") == 1
    captured = capsys.readouterr()
    assert "FAILED" in captured.out
    assert captured.out.endswith("2 failed\n")
    assert f"{folder / 'more.cuh'}(1): " in captured.err
    assert "it is wrong" in captured.err
    assert "Traceback" not in captured.err


def test_compile_without_a_compiler_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cli.main(["doctor", "--compile"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "pagedchat: CUDA's Python packages are not installed."
    assert lines[1].startswith("Install them: pip install ")


def test_a_step_that_no_company_changes_is_one_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--batch-invariant"]) == 2
    assert "--batch-invariant needs --model." in capsys.readouterr().err
    assert cli.main(["doctor", "--kv-cache-dtype", "fp8"]) == 2
    assert "--kv-cache-dtype needs --model." in capsys.readouterr().err
    assert cli.main(["doctor", "--model", "m", "--kv-cache-dtype", "fp4"]) == 2
    assert "--kv-cache-dtype is 'fp4'" in capsys.readouterr().err


def test_architecture_alone_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--arch", "sm_90"]) == 2
    assert capsys.readouterr().err == (
        "pagedchat: --arch needs --compile or --model.\nWrite: pagedchat doctor --compile --arch sm_90\n"
    )


def test_unknown_architecture_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--compile", "--arch", "sm_12"]) == 2
    error = capsys.readouterr().err
    assert "--arch: invalid choice: 'sm_12'" in error
    assert "sm_120" in error


def test_doctors_help_comes_without_the_compiler() -> None:
    program = (
        "import sys\nfrom pagedchat.cli import main as cli\n"
        "try: cli.main(['doctor', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'cuda', 'textual') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "--compile" in result.stdout
    assert result.stdout.splitlines()[-1] == "[]"


# --- tables -------------------------------------------------------------------------------------------


def test_kernels_are_one_line_an_entry() -> None:
    text = kernels_text([built("scale", spills=48), built("other", cached=True), failed("third")])
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["scale", "40", "2", "KiB", "48", "B", "0.50", "s", "FLAG=0"],
        ["other", "40", "2", "KiB", "0", "B", "from", "cache", "FLAG=0"],
        ["third", "-", "-", "-", "FAILED", "FLAG=1"],
    ]


def test_matrix_has_the_worst_variant_of_each_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_text, "CATALOGUE", (SCALE, OLD_FLAG))
    builds = [built("scale"), built("scale", spills=8, registers=255), failed("old"), built("old"),
              built("old", "sm_75")]  # fmt: skip
    lines = matrix_text(builds, ["sm_75", "sm_90"]).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["kernel", "sm_75", "sm_90", "compiled", "in"],
        ["scale", "-", "255+8", "1.0", "s"],
        ["old", "40", "FAILED", "1.0", "s"],
    ]


def test_what_is_left_out_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_text, "CATALOGUE", (SCALE, OLD_FLAG))
    assert limits_text(["sm_75", "sm_80"]) == "left out\n  old FLAG=1 on sm_75: it has no flag"
    assert limits_text(["sm_80"]) == ""


def test_warning_of_many_variants_is_shown_once() -> None:
    warned = [
        replace(build, cubin=Cubin(b"", (), 0.1, "k.cu(1): warning: hm")) for build in [built("a"), built("b")]
    ]
    assert warnings_text([*warned, failed("c")]) == "warnings\nk.cu(1): warning: hm"
    assert warnings_text([built("a")]) == ""


def test_failures_come_with_their_logs() -> None:
    assert failures_text([built("a")]) == ""
    assert failures_text([failed("a"), failed("b")]) == (
        "Kernel a does not compile.\nk.cu(1): error: it is wrong\n\n"
        "Kernel b does not compile.\nk.cu(1): error: it is wrong"
    )


# --- progress -----------------------------------------------------------------------------------------


def test_progress_overwrites_itself_in_a_terminal() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with ProgressLine(stream) as progress:
        progress(1, 2, built("a_long_name"))
        progress(2, 2, built("b"))
    shown = "compiled 1 of 2 variants, a_long_name for sm_90"
    assert stream.getvalue() == (
        f"\r{shown}\r{'compiled 2 of 2 variants, b for sm_90':<{len(shown)}}\r{'':{len(shown)}}\r"
    )


def test_progress_is_ten_lines_in_a_log() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        for done in range(1, 390):
            progress(done, 389, built("k"))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1] == "compiled 389 of 389 variants, k for sm_90"


def test_driver_that_refuses_becomes_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> str:
        raise KernelError("The NVIDIA driver does not start: CUDA_ERROR_UNKNOWN.", "Check with nvidia-smi.")

    monkeypatch.setattr(machine_module, "driver", SimpleNamespace(driver_version=refuse))
    machine = look_at_machine(KernelCache(tmp_path))
    assert machine.no_gpu == "The NVIDIA driver does not start: CUDA_ERROR_UNKNOWN."
