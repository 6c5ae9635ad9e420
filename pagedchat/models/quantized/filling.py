"""The tensors of a checkpoint on the way into quantised layers: what comes in few bits stays so, what comes as
floats is quantised where that is wanted, one tensor after the other. Knows no files.
"""

from collections.abc import Callable, Iterator, Mapping

import torch

from pagedchat.errors import ModelError
from pagedchat.layers.quantized_linear import QuantizedLinear, Slot, Stored, StoredEmbedding
from pagedchat.models.filling import Filling, Read, as_floats, ordered
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized.forms import Form
from pagedchat.models.quantized.mxfp4 import PackedExpert
from pagedchat.models.quantized.quantising import Quantising
from pagedchat.models.quantized.shell import CPU
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.ops.common.pages import FilePages
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.packing import PackedWeight
from pagedchat.ops.quantized.weight import QuantizedWeight


class QuantizedFilling(Filling):
    """See `Filling`, for a model from `quantized_shell`.

    Args:
        name, model, copies, on_progress: as there.
        dtype: of what stays floats.
        forms: of products that come as floats and are quantised.
        device: where weights go, and where they are quantised.
        kernels: of a CPU, that will multiply by them, if there are any.
    """

    def __init__(
        self,
        name: str,
        model: NativeModel,
        copies: StagedCopies,
        on_progress: Callable[[int, int], None],
        dtype: torch.dtype,
        forms: Mapping[QuantizedLinear, list[Form]],
        device: torch.device = CPU,
        kernels: CpuKernels | None = None,
    ) -> None:
        super().__init__(name, model, copies, on_progress)
        linears = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
        self._slots: dict[str, Slot] = {name: slot for linear in linears for name, slot in linear.slots.items()}
        self._dtype = dtype
        self._device = device
        starts = {linear: {slot.start for slot in linear.slots.values()} for linear in linears}
        self._quantising = Quantising(forms, starts, kernels)
        self._pages = FilePages()

    def fill(self, tensors: Iterator[tuple[str, Read]]) -> None:
        """See `Filling`."""
        super().fill(tensors)
        for slot in self._slots.values():
            slot.linear.slots.clear()  # a layer that knows itself would be freed late

    def _put(self, name: str, stored: Stored) -> None:
        embedding = self._model.embedding
        if name in self._slots:
            self._missing.discard(name)
            self._put_part(name, stored, self._slots[name])
        elif name == self._model.embedding_name and isinstance(embedding, StoredEmbedding):
            self._missing.discard(name)
            if self._fits(name, _shape_of(stored)):
                embedding.table = self._as_stored(stored)
                if self._model.tied:
                    self._put_head(embedding.table)
                self._tell()
        else:
            super()._put(name, stored)
            if name == self._model.embedding_name and self._model.tied:
                self._put_head(stored)

    def _put_part(self, name: str, stored: Stored, slot: Slot) -> None:
        """A product, or a part of one."""
        if not self._fits(name, _shape_of(stored)):
            return
        order = self._orders.get(name)
        if isinstance(stored, QuantizedWeight):
            few = (stored if order is None else stored.rows(order)).to(self._device)
            if not slot.transposed:
                slot.linear.fill(slot.start, few)
                self._tell()
                return
            rows = few.dequantized(self._dtype)
        else:
            rows = ordered(stored, order)
        self._fill_floats(name, rows.T if slot.transposed else rows, slot)
        self._tell()

    def _put_expert(self, name: str, expert: PackedExpert) -> None:
        """In 8 bits, unless they are to be quantised otherwise."""
        slot = self._slots.get(name)
        wanted = slot is not None and not self._quantising.takes(slot.linear)
        few = expert.in_8_bits(self._device) if wanted else None
        if slot is None or few is None:
            super()._put_expert(name, expert)
            return
        self._missing.discard(name)
        if self._fits(name, _shape_of(few).T):
            for start, rows in slot.in_order(few.out_features):
                slot.linear.fill(start, few.rows(rows))
            self._tell()

    def _fill_floats(self, name: str, rows: torch.Tensor, slot: Slot) -> None:
        for start, some in slot.in_order(len(rows)):
            self._fill(name, rows[some], slot.linear, start)

    def _fill(self, name: str, rows: torch.Tensor, linear: QuantizedLinear, start: int) -> None:
        """Floats, from a row of the product on."""
        if not self._quantising.takes(linear):
            linear.fill(start, rows.to(self._device, self._dtype, copy=True))
            return
        try:
            self._quantising.add(linear, start, self._on_device(rows))
        except ValueError as error:
            raise ModelError(
                f"The weights of {self._name} cannot be quantised: in {name}, {error}.",
                "Use --quantize none, or download the model again.",
            ) from error

    def _unpacking_device(self, place: torch.Tensor) -> torch.device:
        """See `Filling`; places of products have none."""
        return self._device if place.is_meta else super()._unpacking_device(place)

    def _on_device(self, rows: torch.Tensor) -> torch.Tensor:
        """Where they are quantised, of the type that they have."""
        if rows.device == self._device or self._device.type == "cpu":
            return rows
        place = torch.empty(rows.shape, dtype=rows.dtype, device=self._device)
        self._copies.copy(place, rows)
        self._pages.forget(rows)
        return place

    def _as_stored(self, stored: Stored) -> Stored:
        """A table. Of floats no wider than the model's it stays in the file that it is mapped from: a step reads
        one row for each token, and so next to nothing of it is ever in memory."""
        if isinstance(stored, QuantizedWeight) or stored.itemsize <= self._dtype.itemsize:
            return stored
        return stored.to(self._dtype)

    def _settle_head(self, stored: Stored | None) -> None:
        """A tied head is a product of its own, from what the checkpoint calls the head if that is not the table of
        the tokens once more: where the config is wrong, it is another."""
        model, embedding = self._model, self._model.embedding
        if stored is None:
            return
        if not isinstance(embedding, StoredEmbedding):
            self._settle_head_on_gpu(stored)
            return
        table = embedding.table
        if model.embedding_name in self._missing:
            self._put(model.embedding_name, stored)
        elif _shape_of(stored).shape != model.head.weight.shape:
            self._mismatched.append(model.head_name)
        elif isinstance(table, PackedWeight) or not torch.equal(as_floats(stored), as_floats(table)):
            self._put_head(stored)

    def _settle_head_on_gpu(self, stored: Stored) -> None:
        """The same where the table is a layer like others."""
        model = self._model
        if model.embedding_name in self._missing:
            self._put(model.embedding_name, stored)
            return
        table = model.embedding.weight
        if _shape_of(stored).shape != table.shape:
            self._mismatched.append(model.head_name)
        elif not torch.equal(as_floats(stored).to(table), table):
            self._put_head(stored)

    def _put_head(self, stored: Stored) -> None:
        head = self._model.head
        if isinstance(head, QuantizedLinear):
            if isinstance(stored, QuantizedWeight):
                head.fill(0, stored.to(self._device))
            else:
                self._fill(self._model.head_name, stored, head, 0)


def _shape_of(stored: Stored) -> torch.Tensor:
    """Something of its shape and, for floats, its type."""
    if isinstance(stored, QuantizedWeight):
        return torch.empty(stored.out_features, stored.in_features, device="meta")
    return stored
