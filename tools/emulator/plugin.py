"""A plugin of pytest (`-p tools.emulator.plugin`): every test runs with the ops' kernels on the CPU.

Tests for the device "cpu", which are about torch otherwise, are then about the kernels.
"""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from pagedchat.errors import PagedChatError
from tools.emulator.compiler import find_compiler


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--emulator-seed`, `--multiprocessors` and `--fence`."""
    group = parser.getgroup("emulator", "kernels on the CPU")
    group.addoption("--emulator-seed", type=int, default=1, help="order of warps and copies; 0 is in order")
    group.addoption("--multiprocessors", type=int, default=132, help="that ops believe in")
    group.addoption("--fence", choices=["none", "before", "behind"], default="none", help="where tensors have one")


def pytest_sessionstart() -> None:
    """Says at once what is missing."""
    try:
        find_compiler()
    except PagedChatError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture(autouse=True)
def _kernels_on_cpu(request: pytest.FixtureRequest) -> Iterator[None]:
    from tools.emulator.fences import FencedTensors, Side  # noqa: PLC0415 - loads torch
    from tools.emulator.ops import kernels_on_cpu  # noqa: PLC0415 - likewise

    option = request.config.getoption
    side = option("--fence")
    fence = nullcontext() if side == "none" else FencedTensors(Side[side.upper()])
    with fence, kernels_on_cpu(seed=option("--emulator-seed"), num_multiprocessors=option("--multiprocessors")):
        yield
