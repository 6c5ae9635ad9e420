"""Which model on which device through which attention backend: what the same tests run over."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from pagedchat.runtime.attention import choice
from tests.helpers_models import FAMILIES, KERNEL_FAMILIES


class Setup(NamedTuple):
    family: str
    device: str
    backend: str

    def __str__(self) -> str:
        return f"{self.family}-{self.device}-{self.backend}"

    @property
    def block_size(self) -> int:
        """As small as can be: many blocks in a short text. The kernels have none below 8."""
        return 8 if self.device == self.backend == "cuda" else 4

    @property
    def arguments(self) -> dict[str, Any]:
        return {"device": self.device, "attention_backend": self.backend}


def setups(
    families: list[str] = FAMILIES,
    layout_families: list[str] = FAMILIES,
    kernel_families: list[str] = KERNEL_FAMILIES,
) -> list[Any]:
    """What to parametrise over.

    Args:
        families: through plain torch, on the CPU and on a GPU.
        layout_families: through the kernels' backend on the CPU, its ops being made of torch there.
        kernel_families: through the kernels, on a GPU.
    """
    cpu = [Setup(family, "cpu", "torch") for family in families]
    cpu += [Setup(family, "cpu", "cuda") for family in layout_families]
    gpu = [Setup(family, "cuda", "torch") for family in families]
    gpu += [Setup(family, "cuda", "cuda") for family in kernel_families]
    return [
        *(pytest.param(setup, id=str(setup)) for setup in cpu),
        *(pytest.param(setup, id=str(setup), marks=pytest.mark.gpu) for setup in gpu),
    ]


@contextmanager
def kernels_on_cpu() -> Iterator[None]:
    """`attention_backend="cuda"` goes anywhere: on a CPU its ops are made of torch, for all shapes."""
    with pytest.MonkeyPatch.context() as patch:
        real = choice.missing_support
        patch.setattr(choice, "missing_support", lambda s, d: "" if d.type == "cpu" else real(s, d))
        build = choice.KernelBuild
        patch.setattr(
            choice,
            "KernelBuild",
            lambda s, c, d, **_: _NothingToBuild() if d.type == "cpu" else build(s, c, d, **_),
        )
        yield


class _NothingToBuild:
    def wait(self, _report: object) -> None:
        pass
