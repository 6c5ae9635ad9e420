"""Makes arm64 the processor of a run of pytest, before any test imports kernels."""

import os

import torch

from pagedchat.jit.cpu import library, pool, target
from tests.jit.cpu.targets import ARM, OLD_ARM
from tools.arm64.machine import ForeignLibrary
from tools.arm64.program import ForeignPool, ForeignProgram

torch.set_num_threads(1)
_PROCESSOR = OLD_ARM if os.environ.get("ARM64") == "old" else ARM
target.host_target = lambda: _PROCESSOR  # type: ignore[assignment]
library.Library = ForeignLibrary  # type: ignore[assignment,misc]
pool.Pool, pool.Program = ForeignPool, ForeignProgram  # type: ignore[assignment,misc]
