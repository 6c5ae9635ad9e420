"""CPU kernels that cannot be had, or are wrong, or whose files or threads are not what they should be: replies are
right all the same, and where they come more slowly, that is said.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from pagedchat import LLM, SamplingParams
from pagedchat.cli import main as cli
from pagedchat.errors import KernelError
from pagedchat.jit.cache import CPU_SUFFIX, default_folder
from pagedchat.jit.cpu import compiler, library, target
from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.library import Library
from pagedchat.jit.cpu.pool import Pool
from pagedchat.jit.cpu.target import CpuTarget, host_target
from pagedchat.ops.cpu import kernels, quantized_product
from pagedchat.ops.cpu.linear import CpuLinear
from pagedchat.private_files import make_folder
from pagedchat.runtime.cpu.step import CpuStep
from tests.faults.counting import count_with, module_that_counts, program_over
from tests.helpers_models import OF_8_BITS, check_greedy
from tests.models.families.tiny_families import save, wide_model
from tests.models.quantized.dequantised import dequantised_checkpoint

PROMPTS = [[(11 * i) % 290 + 3 for i in range(length)] for length in (1, 20, 37)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def here() -> CpuTarget:
    found = host_target()
    if isinstance(found, str):
        pytest.skip(f"no CPU kernels, since {found}")
    return found


@pytest.fixture
def fresh(here: CpuTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Kernels are made anew for this test, in a cache of its own; returns its folder."""
    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    caches = (kernels._make, target.host_target, target.binding)
    for each in caches:
        each.cache_clear()
    yield tmp_path / "cache"
    kernels._failed.clear()
    for each in caches:
        each.cache_clear()


@pytest.fixture(scope="module")
def compiled(here: CpuTarget) -> list[Path]:
    """Files of the kernels that are right, as all other tests have them: they take seconds to compile."""
    kernels.cpu_kernels()
    return list(default_folder().glob(f"*{CPU_SUFFIX}"))


@pytest.fixture
def but_the_right_ones(compiled: list[Path], fresh: Path) -> None:
    """Kernels that are wrong are made anew for this test; those that are right are in its cache."""
    make_folder(default_folder())
    for path in compiled:
        shutil.copy(path, default_folder())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return save(tmp_path / "model", wide_model("qwen2"))


def engine(model: Path, **options: object) -> LLM:
    return LLM(str(model), device="cpu", dtype="float32", num_blocks=64, skip_tokenizer_init=True, **options)  # type: ignore[arg-type]


def replies(llm: LLM) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


# --- kernels that cannot be had ---------------------------------------------------------------------


def without_llvm(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "llvmlite", None)
    patch.setitem(sys.modules, "llvmlite.binding", None)


def without_avx2(patch: pytest.MonkeyPatch) -> None:
    llvm = target.binding()
    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("AVX2 is x86's")
    lesser = {**llvm.get_host_cpu_features(), "avx2": False}
    patch.setattr(llvm, "get_host_cpu_features", lambda: lesser)


def with_llvm_that_fails(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise KernelError("LLVM refuses a CPU kernel: out of registers")

    patch.setattr(library, "compile_object", fail)


def with_llvm_that_fails_later(patch: pytest.MonkeyPatch) -> None:
    right, texts = library.compile_object, []

    def fail(text: str, target: CpuTarget) -> bytes:
        texts.append(text)
        if len(texts) > 2:
            raise KernelError("LLVM refuses a CPU kernel: out of registers")
        return right(text, target)

    patch.setattr(library, "compile_object", fail)


def with_llvm_that_raises(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Unable to find target")

    patch.setattr(compiler, "_machine", fail)


@pytest.mark.parametrize(
    ("breaks", "since"),
    [
        (without_llvm, "LLVM cannot be had ("),
        (without_avx2, "the processor lacks avx2"),
        (with_llvm_that_fails, "LLVM could not make them (LLVM refuses a CPU kernel: out of registers)"),
        (with_llvm_that_fails_later, "LLVM could not make them (LLVM refuses a CPU kernel: out of registers)"),
        (with_llvm_that_raises, "LLVM could not make them (Unable to find target)"),
    ],
)
def test_without_cpu_kernels_torch_computes_all_and_that_is_said(
    breaks: Callable[[pytest.MonkeyPatch], None],
    since: str,
    fresh: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    breaks(monkeypatch)
    llm = engine(model)
    [notice] = llm.notices
    assert notice.startswith(f"There are no CPU kernels here, since {since}")
    assert "torch computes all, and takes longer. pip install llvmlite" in notice
    check_greedy(model, PROMPTS, replies(llm))
    assert cli.main(["doctor"]) == 0
    assert f"none, since {since}" in capsys.readouterr().out


# --- kernels that are wrong -------------------------------------------------------------------------


def drop_a_bit(patch: pytest.MonkeyPatch) -> None:
    """Of every digit of 4 bits, in machine code."""
    patch.setattr(quantized_product, "_LOW", 0x07070707)


def add_too_much(patch: pytest.MonkeyPatch) -> None:
    right = CpuLinear._by_kernels
    patch.setattr(CpuLinear, "_by_kernels", lambda *args: right(*args) * 1.3)


def add_too_much_to_eight_rows(patch: pytest.MonkeyPatch) -> None:
    right = CpuLinear._by_kernels
    patch.setattr(CpuLinear, "_by_kernels", lambda *args: right(*args) * (1.3 if len(args[-1]) > 8 else 1))


@pytest.mark.usefixtures("but_the_right_ones")
@pytest.mark.parametrize(
    ("breaks", "quantization"),
    [(drop_a_bit, "int4"), (add_too_much, "int8"), (add_too_much_to_eight_rows, "none")],
)
def test_a_cpu_kernel_that_is_wrong_makes_way_for_torch(
    breaks: Callable[[pytest.MonkeyPatch], None],
    quantization: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    meant = model
    if quantization != "none":
        (tmp_path / "meant").mkdir()
        meant = dequantised_checkpoint(tmp_path / "meant", model, quantization)  # type: ignore[arg-type]
        kernels._make.cache_clear()  # that had brought weights into few bits, and were right
    with monkeypatch.context() as patch:
        breaks(patch)
        llm = engine(model, quantization=quantization)
        check_greedy(meant, PROMPTS, replies(llm), 1e-4)  # which has nothing of inputs in 8 bits
    sentence = "Products as CPU kernels are left out, since one is off by"
    assert [notice[: len(sentence)] for notice in llm.notices] == [sentence]
    assert sentence in caplog.text
    assert cli.main(["doctor", "--model", str(model)]) == 0
    assert f"  {sentence}" in capsys.readouterr().out
    kernels._make.cache_clear()
    right = engine(model, quantization=quantization)
    assert right.notices == ()
    check_greedy(meant, PROMPTS, replies(right), OF_8_BITS if quantization != "none" else 1e-4)
    assert cli.main(["doctor", "--model", str(model)]) == 0
    assert sentence not in capsys.readouterr().out


@pytest.mark.usefixtures("but_the_right_ones")
def test_a_cpu_step_that_is_wrong_makes_way_for_the_modules(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = CpuStep.run
    monkeypatch.setattr(CpuStep, "run", lambda *args: right(*args) * 1.5)
    llm = engine(model)
    assert [notice[:54] for notice in llm.notices] == ["Steps as one call into CPU kernels are left out, since"]
    check_greedy(model, PROMPTS, replies(llm))
    assert cli.main(["doctor", "--model", str(model)]) == 0
    assert "  Steps as one call into CPU kernels are left out" in capsys.readouterr().out


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["corrupt", "another kernel's", "no folder", "full"])
def test_cpu_kernels_whose_files_cannot_be_used_are_compiled_anew(
    fault: str,
    here: CpuTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache, text = ObjectCache(tmp_path / "kernels"), module_that_counts()
    assert not Library(text, here, cache).was_kept
    [entry] = (tmp_path / "kernels").iterdir()
    if fault == "corrupt":
        entry.write_bytes(entry.read_bytes()[:-200] + os.urandom(200))
    elif fault == "another kernel's":
        Library(text.replace("@count", "@other"), here, ObjectCache(tmp_path / "others"))
        entry.write_bytes(next((tmp_path / "others").iterdir()).read_bytes())
    elif fault == "no folder":
        entry.unlink()
        entry.parent.rmdir()
        entry.parent.write_text("in the way")
    else:
        entry.unlink()

        def fill(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", fill)
    made = Library(text, here, cache)
    assert not made.was_kept
    assert count_with(made, here) == [1] * 50
    assert ("was damaged; the kernels are compiled anew" if fault in ("corrupt", "another kernel's") else
            "Compiled kernels cannot be kept in") in caplog.text  # fmt: skip
    monkeypatch.undo()
    assert Library(text, here, cache).was_kept == (fault not in ("no folder", "full"))
    assert not list(tmp_path.rglob(".new-*"))


AT_ONCE = """
import sys
from pathlib import Path
from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.target import host_target
from tests.faults.counting import count_with, module_that_counts
from pagedchat.jit.cpu.library import Library
cache, here = ObjectCache(Path(sys.argv[1])), host_target()
print("ready", flush=True)
sys.stdin.readline()
print(count_with(Library(module_that_counts(), here, cache), here))
"""


def test_processes_that_compile_the_same_cpu_kernel_at_once_all_have_it(here: CpuTarget, tmp_path: Path) -> None:
    start, pipe = [sys.executable, "-c", AT_ONCE, str(tmp_path / "kernels")], subprocess.PIPE
    root = str(Path(__file__).parents[2])
    processes = [
        subprocess.Popen(start, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)
    ]
    assert [process.stdout and process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate() for process in processes] == [(f"{[1] * 50}\n", "")] * 2
    assert [path.suffix for path in (tmp_path / "kernels").iterdir()] == [".o"]
    assert Library(module_that_counts(), here, ObjectCache(tmp_path / "kernels")).was_kept


SOON_OVER = """
import sys, time
from pagedchat.ops.cpu.kernels import prepare_in_background
prepare_in_background()
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("seconds", ["0", "0.5", "1.1"])
def test_a_process_ends_well_in_the_midst_of_compiling(here: CpuTarget, seconds: str, tmp_path: Path) -> None:
    """LLVM that is taken down while it works ends a process with a signal."""
    assert here.llvm
    done = subprocess.run(
        [sys.executable, "-c", SOON_OVER, seconds], cwd=Path(__file__).parents[2], capture_output=True, text=True,
        env={**os.environ, "PAGEDCHAT_CACHE_DIR": str(tmp_path)}, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.rglob(f"*{CPU_SUFFIX}"))


# --- threads ----------------------------------------------------------------------------------------


def test_threads_that_the_system_does_not_give_are_done_without(
    here: CpuTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, started = threading.Thread.start, []

    def one_and_no_more(thread: threading.Thread) -> None:
        if thread.name.startswith("cpu kernels"):
            if started:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", one_and_no_more)
    made = Library(module_that_counts(), here, ObjectCache(tmp_path))
    pool = Pool(4, here, ObjectCache(tmp_path))
    assert pool.num_threads == 2
    assert "CPU kernels have 2 of 4 threads: can't start new thread" in caplog.text
    numbers = (ctypes.c_int64 * 50)()
    program = program_over(numbers, made, pool)
    for _ in range(100):
        program.run()
    assert set(numbers) == {100}
    pool.close()


def test_threads_of_cpu_kernels_that_are_gone_leave_their_work_to_whoever_calls(
    here: CpuTarget, tmp_path: Path
) -> None:
    made = Library(module_that_counts(), here, ObjectCache(tmp_path))
    pool, numbers = Pool(3, here, ObjectCache(tmp_path)), (ctypes.c_int64 * 50)()
    program = program_over(numbers, made, pool)
    program.run()
    pool.close()
    for _ in range(100):
        program.run()
    assert set(numbers) == {101}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_off_in_the_midst_of_a_run_computes_alone(here: CpuTarget, tmp_path: Path) -> None:
    """Of the parent's threads it has none, whatever they were at."""
    made = Library(module_that_counts(), here, ObjectCache(tmp_path))
    pool, numbers = Pool(3, here, ObjectCache(tmp_path)), (ctypes.c_int64 * 3000)()
    program, mine = program_over(numbers, made, pool), (ctypes.c_int64 * 50)()
    ended = threading.Event()

    def run_often() -> None:
        while not ended.is_set():
            program.run()

    runs = threading.Thread(target=run_often)
    runs.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:

                def late(*_: object) -> None:
                    os._exit(2)

                import signal

                signal.signal(signal.SIGALRM, late)
                signal.alarm(20)
                status = 3
                try:
                    its_own = program_over(mine, made, pool)
                    its_own.run()
                    del its_own  # waits until nobody looks at it
                    status = 0 if set(mine) == {1} else 1
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        ended.set()
        runs.join()
        pool.close()


@pytest.mark.usefixtures("but_the_right_ones")
def test_replies_beside_ones_that_are_taken_back_are_the_same_by_cpu_kernels(model: Path) -> None:
    """Several callers, and requests that end in the midst of a reply."""
    llm = engine(model, quantization="int8")
    alone = replies(llm)
    others = [engine(model, quantization="int8") for _ in range(2)]
    with ThreadPoolExecutor(3) as threads:
        together = list(threads.map(replies, [llm, *others]))
    assert together == [alone] * 3
    assert torch.get_num_threads() >= 1
