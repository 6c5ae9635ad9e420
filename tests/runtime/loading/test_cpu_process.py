import os

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
