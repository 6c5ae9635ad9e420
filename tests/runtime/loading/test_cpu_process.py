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


def test_what_is_kept_of_batches_of_every_size_is_bounded(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run([sys.executable, "-c", MANY_SHAPES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 80 * 2**20, "0.5 MiB for each of 252 shapes, were they all kept"
