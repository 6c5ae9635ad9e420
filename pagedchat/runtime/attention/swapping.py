"""Swaps beside the computation: a stream of their own, layer by layer, with an event after each layer.

::

    compute   ... step n-1 |      layer 0 | layer 1 | layer 2 ...
                            \\    ^         ^         ^            a layer waits for its own blocks only
    swaps                    layer 0 | layer 1 | layer 2 ...

All swaps begin after what the compute stream has been given so far (it may still read what they overwrite, and
write what they read), and keep their order among themselves.
"""

import torch

from pagedchat.ops.cache.swap_blocks import swap_blocks
from pagedchat.runtime.attention.host_cache import HostCache
from pagedchat.runtime.step.upload import int64, upload


class BlockSwapper:
    """Moves blocks between the device cache and host memory.

    Args:
        cache: `[num_layers, 2, num_blocks, page_elements]`, on the device.
        num_host_blocks: how many blocks the host memory holds.
    """

    def __init__(self, cache: torch.Tensor, num_host_blocks: int) -> None:
        num_layers, _, _, page_elements = cache.shape
        self._cache = cache
        self.host = HostCache((num_layers, 2, num_host_blocks, page_elements), cache.dtype, cache.device)
        on_gpu = cache.device.type == "cuda" and num_host_blocks > 0
        self._stream = torch.cuda.Stream(cache.device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._moved = [torch.cuda.Event() for _ in range(num_layers if on_gpu else 0)]  # type: ignore[no-untyped-call]
        self._pending: set[int] = set()
        """Layers with swaps that the compute stream has not been told to wait for."""

    def swap_out(self, src: list[int], dst: list[int]) -> None:
        """Copy device block `src[i]` to host block `dst[i]`, all layers."""
        self._move(self._cache, self.host.tensor, src, dst)

    def swap_in(self, src: list[int], dst: list[int]) -> None:
        """Copy host block `src[i]` to device block `dst[i]`, all layers."""
        self._move(self.host.tensor, self._cache, src, dst)

    def wait_for_layer(self, layer_idx: int) -> None:
        """What the current stream is given from now on comes after this layer's swaps."""
        if layer_idx in self._pending:
            torch.cuda.current_stream(self._cache.device).wait_event(self._moved[layer_idx])
            self._pending.remove(layer_idx)

    def wait_for_all(self) -> None:
        """The same for the swaps of all layers."""
        for layer_idx in tuple(self._pending):
            self.wait_for_layer(layer_idx)

    def synchronize(self) -> None:
        """Wait here until every swap is done."""
        if self._stream is not None:
            self._stream.synchronize()

    def _move(self, source: torch.Tensor, target: torch.Tensor, src: list[int], dst: list[int]) -> None:
        if self._stream is None:
            swap_blocks(source, target, int64(src), int64(dst))
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._cache.device))
        with torch.cuda.stream(self._stream):
            pairs = upload([int64(src), int64(dst)], self._cache.device)
            for layer_idx, event in enumerate(self._moved):
                layer = slice(layer_idx, layer_idx + 1)
                swap_blocks(source[layer], target[layer], *pairs)
                event.record(self._stream)
        self._pending.update(range(len(self._moved)))
