"""What a kernel lays out in shared memory, held against what its plan says, by the compiler."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from pagedchat.jit.builder import KernelBuilder
from pagedchat.jit.cache import KernelCache
from pagedchat.jit.kernel_file import Constants
from pagedchat.jit.variant import Variant
from pagedchat.resources import resource_dir

_SOURCE = """
static_assert(sizeof(Shared) <= ROOM && sizeof(Shared) > ROOM - MOST_SPARE, "the plan has another layout");
extern "C" __global__ void room() {}
"""


def assert_room(headers: Iterable[str], rooms: Iterable[Constants], folder: Path) -> None:
    """`Shared` of `headers` takes no more than ROOM bytes, and MOST_SPARE less at most.

    Args:
        headers: in the folder of kernels, in this order.
        rooms: those two among the constants of a launch, for each.
        folder: an empty one.
    """
    shutil.copytree(resource_dir("kernels"), folder / "kernels")
    includes = "".join(f'#include "{header}"\n' for header in headers)
    (folder / "kernels" / "room.cu").write_text(includes + _SOURCE, encoding="utf-8")
    builder = KernelBuilder(folder / "kernels", KernelCache(folder / "cache"))
    variants = [Variant.of("room", **constants) for constants in rooms]
    for build in builder.build_all([(variant, "sm_90") for variant in variants]):
        assert build.cubin is not None, f"{build.variant}: {build.error}"
