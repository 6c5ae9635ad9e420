"""What to say when CUDA's Python packages are not there."""

import sys

from pagedchat.errors import KernelError

_PACKAGES = 'cuda-python>=13" "cuda-core>=1.2" "nvidia-cuda-nvrtc>=13" "nvidia-cuda-runtime>=13'


def packages_missing() -> KernelError:
    """On Linux they can be installed; for other systems there are none that pagedchat uses."""
    if sys.platform != "linux":
        return KernelError("CUDA kernels need Linux; on this system chats run on the CPU.")
    return KernelError("CUDA's Python packages are not installed.", f'Install them: pip install "{_PACKAGES}"')
