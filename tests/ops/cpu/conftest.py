"""CPU kernels need LLVM and a processor that they are for; those for lesser processors of the kind run here too."""

from collections.abc import Iterator

import pytest

from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.target import CpuTarget, host_target
from pagedchat.ops.cpu.kernels import CpuKernels
from tests.jit.cpu.targets import AVX2, AVX512, AVX_VNNI


def targets() -> list[CpuTarget]:
    host = host_target()
    if isinstance(host, str):
        return []
    others = (AVX2, AVX_VNNI, *([AVX512] if host.multiplies_bf16 else []))
    lesser = [each for each in others if host.is_x86 and each.features <= host.features]
    return [host, *lesser]


@pytest.fixture(scope="session", params=targets() or [None], ids=lambda each: each.name if each else "none")
def kernels(request: pytest.FixtureRequest) -> Iterator[CpuKernels]:
    if request.param is None:
        pytest.skip(f"no CPU kernels, since {host_target()}")
    made = CpuKernels(request.param, 2, ObjectCache())
    yield made
    made.pool.close()
