"""What stands for a kernel while only those are looked for that will be launched."""

from typing import Any

from pagedchat.jit.kernel import Kernel


class RehearsedKernel(Kernel):
    """Takes what a kernel takes and does nothing; nothing is built or loaded for it."""

    def __init__(self) -> None:
        """Of no variant in particular."""

    def launch(self, *_args: Any, **_options: Any) -> None:
        """Nothing is launched."""

    def allow_shared(self, _num_bytes: int) -> None:
        """There is as much as anybody wants."""

    def prefer_shared(self) -> None:
        """Nothing is divided."""

    def active_thread_blocks(self, _block_threads: int, _shared_bytes: int = 0) -> int:
        """As many as anybody wants: whether they fit shows when there is a kernel."""
        return 1 << 20

    def active_clusters(self, _cluster: int, _block_threads: int, _shared_bytes: int = 0) -> int:
        """Likewise."""
        return 1 << 20
