"""Which attention backend a model gets, and the compiling that our kernels need before their first step."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from pagedchat.config import AttentionBackendName
from pagedchat.errors import DeviceError, InvalidValueError, KernelError
from pagedchat.ops.common.choices import ScoreParts
from pagedchat.runtime.attention.backend import AttentionBackend, CacheShape
from pagedchat.runtime.attention.kernel_build import KernelBuild
from pagedchat.runtime.attention.kernel_support import missing_shape, missing_support

log = logging.getLogger(__name__)

BackendFactory = Callable[[CacheShape, int, int, torch.device], AttentionBackend]
"""Makes a backend for a cache shape with so many device blocks and host blocks, on a device."""


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """What was chosen, and why."""

    name: Literal["cuda", "torch"]
    reason: str = ""
    """Why torch and not our kernels, in one sentence; empty where that was asked for or goes without saying."""

    @property
    def factory(self) -> BackendFactory:
        """The backend's class; imported here, since only the chosen one is wanted."""
        if self.name == "cuda":
            from pagedchat.runtime.attention.cuda_backend import CudaAttention  # noqa: PLC0415

            return CudaAttention
        from pagedchat.runtime.attention.torch_backend import TorchAttention  # noqa: PLC0415

        return TorchAttention


class BackendChooser:
    """Decides in two halves, so that kernels are compiled while weights are read.

    Args:
        wanted: what the user asked for.
        shape: of the model's cache.
        scores: what the model does to its scores.
        device: where the model runs.

    Raises:
        DeviceError: "cuda" was asked for and this device cannot run the kernels.
        InvalidValueError: "cuda" was asked for and the kernels cannot serve this model.
    """

    def __init__(
        self, wanted: AttentionBackendName, shape: CacheShape, scores: ScoreParts, device: torch.device
    ) -> None:
        self._wanted = wanted
        self._missing = "" if wanted == "torch" else missing_support(shape, device)
        if wanted == "cuda" and self._missing:
            kind = InvalidValueError if device.type == "cuda" and missing_shape(shape) else DeviceError
            raise kind(
                f"--attention-backend cuda was asked for, but the kernels cannot be used: {self._missing}.",
                "Use --attention-backend auto or torch.",
            )
        self._on_gpu = device.type == "cuda"
        uses_kernels = wanted != "torch" and not self._missing
        self._build = KernelBuild(shape, scores, device) if uses_kernels else None

    @property
    def if_built(self) -> BackendChoice | None:
        """What `choose` chooses if all kernels compile: ours; None where it does without them."""
        return None if self._build is None else BackendChoice("cuda")

    def choose(self, report: Callable[[str, int, int], None]) -> BackendChoice:
        """Wait until the kernels are compiled.

        Args:
            report: told a message, how many kernels are done, and of how many.

        Raises:
            KernelError: "cuda" was asked for and a kernel does not compile, or there is nothing to compile it with.
        """
        if self._build is None:
            says_why = self._wanted == "auto" and self._on_gpu
            return BackendChoice("torch", f"The kernels cannot be used: {self._missing}." if says_why else "")
        try:
            self._build.wait(report)
        except KernelError as error:
            if self._wanted == "cuda":
                raise
            log.warning("Attention goes through torch, since the kernels cannot be built: %s", error)
            return BackendChoice("torch", f"The kernels cannot be built: {error.message}")
        return BackendChoice("cuda")
