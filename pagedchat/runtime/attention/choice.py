"""Which attention backend a model gets, and the compiling that our kernels need before their first step."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    batch_invariant: bool = False
    """Whether a token's result is to follow from its sequence alone."""

    @property
    def factory(self) -> BackendFactory:
        """What makes the backend; imported here, since only the chosen one is wanted."""
        if self.name == "cuda":
            from pagedchat.runtime.attention.cuda_backend import CudaAttention  # noqa: PLC0415

            return partial(CudaAttention, batch_invariant=self.batch_invariant)
        from pagedchat.runtime.attention.torch_backend import TorchAttention  # noqa: PLC0415

        return partial(TorchAttention, batch_invariant=self.batch_invariant)


class BackendChooser:
    """Decides in two halves, so that kernels are compiled while weights are read.

    Args:
        wanted: what the user asked for.
        shape: of the model's cache.
        scores: what the model does to its scores.
        device: where the model runs.
        batch_invariant: whether a token's result is to follow from its sequence alone.

    Raises:
        DeviceError: "cuda" was asked for and this device cannot run the kernels.
        InvalidValueError: "cuda" was asked for and the kernels cannot serve this model.
    """

    def __init__(
        self,
        wanted: AttentionBackendName,
        shape: CacheShape,
        scores: ScoreParts,
        device: torch.device,
        *,
        batch_invariant: bool = False,
    ) -> None:
        self._wanted, self._batch_invariant = wanted, batch_invariant
        self._missing = "" if wanted == "torch" else missing_support(shape, device)
        if wanted == "cuda" and self._missing:
            kind = InvalidValueError if device.type == "cuda" and missing_shape(shape) else DeviceError
            raise kind(
                f"--attention-backend cuda was asked for, but the kernels cannot be used: {self._missing}.",
                "Use --attention-backend auto or torch.",
            )
        self._on_gpu = device.type == "cuda"
        uses_kernels = wanted != "torch" and not self._missing
        build = KernelBuild(shape, scores, device, batch_invariant=batch_invariant) if uses_kernels else None
        self._build = build

    @property
    def if_built(self) -> BackendChoice | None:
        """What `choose` chooses if all kernels compile: ours; None where it does without them."""
        return None if self._build is None else self._chosen("cuda")

    def choose(self, report: Callable[[str, int, int], None]) -> BackendChoice:
        """Wait until the kernels are compiled.

        Args:
            report: told a message, how many kernels are done, and of how many.

        Raises:
            KernelError: "cuda" was asked for and a kernel does not compile, or there is nothing to compile it with.
        """
        if self._build is None:
            says_why = self._wanted == "auto" and self._on_gpu
            return self._chosen("torch", f"The kernels cannot be used: {self._missing}." if says_why else "")
        try:
            self._build.wait(report)
        except KernelError as error:
            if self._wanted == "cuda":
                raise
            log.warning("Attention goes through torch, since the kernels cannot be built: %s", error)
            return self._chosen("torch", f"The kernels cannot be built: {error.message}")
        return self._chosen("cuda")

    def _chosen(self, name: Literal["cuda", "torch"], reason: str = "") -> BackendChoice:
        return BackendChoice(name, reason, self._batch_invariant)
