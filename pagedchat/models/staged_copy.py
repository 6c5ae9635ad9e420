"""Tensors from the CPU to their places on a GPU, through pinned memory.

The driver copies from ordinary memory one piece after another, in one thread. Here all cores bring a piece into
pinned memory, from the pages of its file and into the type wanted, while the piece before is on its way.
"""

import torch

_PIECE_BYTES = 16 << 20
_NUM_STAGES = 2


class StagedCopies:
    """Copies that are queued; `finish` waits for the last ones.

    Args:
        device: where they go; copies to a CPU are done at once.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._stages = [
            torch.empty(_PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
            for _ in range(_NUM_STAGES if self._on_gpu else 0)
        ]
        self._arrived = [torch.cuda.Event() for _ in self._stages]  # type: ignore[no-untyped-call]
        self._turn = 0

    def copy(self, place: torch.Tensor, tensor: torch.Tensor) -> None:
        """Copy a tensor and turn it into the type of its place.

        Args:
            place: where it goes.
            tensor: of the same shape; on the CPU, or there already.
        """
        if not (self._on_gpu and tensor.device.type == "cpu" and place.is_contiguous() and tensor.is_contiguous()):
            place.copy_(tensor)
            return
        flat_place, flat = place.view(-1), tensor.view(-1)
        size = _PIECE_BYTES // place.itemsize
        for start in range(0, flat.numel(), size):
            self._copy_piece(flat_place[start : start + size], flat[start : start + size])

    def _copy_piece(self, target: torch.Tensor, source: torch.Tensor) -> None:
        stage, arrived = self._stages[self._turn], self._arrived[self._turn]
        self._turn = (self._turn + 1) % len(self._stages)
        arrived.synchronize()  # what was in this stage
        staged = stage.view(target.dtype)[: target.numel()].copy_(source)
        target.copy_(staged, non_blocking=True)
        arrived.record()

    def finish(self) -> None:
        """Wait until all is there."""
        for arrived in self._arrived:
            arrived.synchronize()
