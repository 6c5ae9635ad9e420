import ctypes
import os
import subprocess
import sys

import pytest

from pagedchat.runtime.loading.cpu_process import tune_for_cpu

NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "THP_MEM_ALLOC_ENABLE")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": "10000", "THP_MEM_ALLOC_ENABLE": "1"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7", "THP_MEM_ALLOC_ENABLE": "1"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active", "THP_MEM_ALLOC_ENABLE": "1"}),
        ({"THP_MEM_ALLOC_ENABLE": "0"}, {"GOMP_SPINCOUNT": "10000", "THP_MEM_ALLOC_ENABLE": "0"}),
    ],
)
def test_the_users_environment_comes_first(monkeypatch, given, expected):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what the call sets is taken back
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    tune_for_cpu()
    assert {name: os.environ[name] for name in NAMES if name in os.environ} == expected


HAS_GLIBC = hasattr(ctypes.CDLL(None), "malloc_trim") and os.path.exists("/proc/self/statm")

BUFFERS_COME_AND_GO = """
import ctypes, os
from pagedchat.runtime.loading.cpu_process import give_back_freed_buffers, models, tune_for_cpu

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

class Model:
    pass

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

def come_and_go():
    size = 40 << 20
    buffers = [libc.malloc(size) for _ in range(8)]
    for buffer in buffers:
        ctypes.memset(buffer, 1, size)
    for buffer in buffers:
        libc.free(buffer)

before = resident()
tune_for_cpu()
model = Model()
models.add(model)
come_and_go()
print("kept", resident() - before)
give_back_freed_buffers()
print("given back", resident() - before)
come_and_go()
print("kept by another", resident() - before)
del model
give_back_freed_buffers()
come_and_go()
print("without a model", resident() - before)
"""


@pytest.mark.skipif(not HAS_GLIBC, reason="needs glibc and /proc")
def test_freed_buffers_stay_while_there_is_a_model_and_go_with_the_last():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", BUFFERS_COME_AND_GO], env=environment, capture_output=True, text=True, check=True
    )
    mebibytes = {name: int(value) for name, value in (line.rsplit(" ", 1) for line in done.stdout.splitlines())}
    assert mebibytes["kept"] > 250
    assert mebibytes["given back"] < 60
    assert mebibytes["kept by another"] > 250
    assert mebibytes["without a model"] < 60
