import ctypes
import os
import subprocess
import sys

import pytest

from pagedchat.runtime.loading.cpu_process import tune_for_cpu

NAMES = (
    "GOMP_SPINCOUNT",
    "OMP_WAIT_POLICY",
    "THP_MEM_ALLOC_ENABLE",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY",
    "LRU_CACHE_CAPACITY",
)
USUAL = {
    "GOMP_SPINCOUNT": "10000",
    "THP_MEM_ALLOC_ENABLE": "1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",
}
MANY_SHAPES = """
from pagedchat.runtime.loading.cpu_process import tune_for_cpu
tune_for_cpu()
import psutil, torch
from pagedchat.models.cpu_linear import CpuLinear
resident = lambda: psutil.Process().memory_info().rss
layers = [CpuLinear(torch.nn.Linear(32, width)) for width in (32, 64)]
for layer in layers:
    layer(torch.zeros(2, 32))
before = resident()
for num_rows in range(3, 129):
    for layer in layers:
        layer(torch.zeros(num_rows, 32))
print(resident() - before)
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, USUAL),
        ({"GOMP_SPINCOUNT": "7"}, USUAL | {"GOMP_SPINCOUNT": "7"}),
        (
            {"OMP_WAIT_POLICY": "active"},
            {name: value for name, value in USUAL.items() if name != "GOMP_SPINCOUNT"}
            | {"OMP_WAIT_POLICY": "active"},
        ),
        ({"THP_MEM_ALLOC_ENABLE": "0"}, USUAL | {"THP_MEM_ALLOC_ENABLE": "0"}),
        ({"LRU_CACHE_CAPACITY": "1024"}, USUAL | {"LRU_CACHE_CAPACITY": "1024"}),
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


def test_what_is_kept_of_batches_of_every_size_is_bounded(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run([sys.executable, "-c", MANY_SHAPES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 80 * 2**20, "0.5 MiB for each of 252 shapes, were they all kept"
