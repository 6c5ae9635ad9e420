"""Linking a kernel: its code finds its constants, wherever the process has room for either."""

import subprocess
import sys

import pytest

pytest.importorskip("llvmlite")

LINKS_OFTEN = """
import ctypes, mmap, random, sys
from pathlib import Path
from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.library import Library
from pagedchat.jit.cpu.target import host_target

text = '''
@numbers = internal constant [4 x float] [float 1.5, float 2.5, float 3.5, float 4.5]
define void @pick(ptr %to, i64 %index) {
  %from = getelementptr [4 x float], ptr @numbers, i64 0, i64 %index
  %number = load float, ptr %from
  store float %number, ptr %to
  ret void
}
'''
source, taken, libraries = random.Random(3), [], []
cache = ObjectCache(Path(sys.argv[1]))
for _ in range(300):
    for _ in range(source.randrange(4)):  # so that what is free next lies anywhere
        size = 1 << source.choice([12, 20, 28, 31, 33])
        taken.append(mmap.mmap(-1, size, prot=mmap.PROT_READ))
    if taken and source.random() < 0.5:
        taken.pop(source.randrange(len(taken))).close()
    libraries.append(Library(text, host_target(), cache))
    number = ctypes.c_float()
    libraries[-1].function("pick", ctypes.c_void_p, ctypes.c_int64)(ctypes.addressof(number), 2)
    assert number.value == 3.5
"""


@pytest.mark.skipif(sys.platform != "linux", reason="maps memory as Linux does")
def test_kernels_are_linked_in_a_process_whose_memory_is_full_of_holes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Code far from its constants would end the process: LLVM asserts that one reaches the other."""
    folder = str(tmp_path_factory.mktemp("objects"))
    done = subprocess.run([sys.executable, "-c", LINKS_OFTEN, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
