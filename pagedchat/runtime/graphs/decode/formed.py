"""The way of masks to the device, for replies with a form in captured decodes.

Masks are written straight into pinned memory. A copy takes them to the device beside the step that computes the
logits they are for, on a stream of its own, and the launch that draws waits for it. Steps that follow one another
use the same piece of memory, of which only masks that have changed are written and copied: by the tokens that say
which those are the step before has read them. Batches take turns with a few pieces: one is written again when
whoever read it has long been waited for.

Knows no forms and no tokens.
"""

from dataclasses import dataclass

import torch

from pagedchat.jit.async_copy import copy_to_device, record_event, wait_for_event
from pagedchat.ops.common.launch import current_stream
from pagedchat.ops.sampling.token_mask import TokenMasks
from pagedchat.runtime.structured.form_rows import FormRows
from pagedchat.runtime.structured.grammar import num_words
from pagedchat.runtime.structured.mask_jobs import MaskRows

_NUM_PIECES = 3
"""One is read by the step that is awaited, and one by a step that was begun in vain, if there is one."""


@dataclass(slots=True)
class MaskPiece:
    """Masks of one step."""

    number: int
    """At least 0."""
    stage: torch.Tensor
    """`[max_num_seqs, num_words]`, int32, pinned."""
    there: torch.Tensor
    """The same on the device; on a CPU the same memory."""
    rows: MaskRows
    """The same memory as `stage`."""
    arrived: torch.cuda.Event | None


@dataclass(slots=True)
class FormedRows:
    """Of steps that follow one another: whose replies have a form, and how their masks are read."""

    rows: FormRows
    mask_rows: torch.Tensor
    """`[num_seqs]`, int32, on the device: which mask each row of the step has, -1: none."""
    piece: "MaskPiece | None" = None
    """Where the masks of the last step are."""

    def masks_in(self, piece: MaskPiece) -> TokenMasks:
        """As they are on the device."""
        return TokenMasks(self.mask_rows, piece.there[: len(self.rows)])


class MaskMemory:
    """Made for the first reply with a form.

    Args:
        max_num_seqs: masks of a step, at most.
        vocab_size: of the model.
        device: where steps run.
    """

    def __init__(self, max_num_seqs: int, vocab_size: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._device, self._turn = device, 0
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._pieces = []
        for number in range(_NUM_PIECES):
            stage = torch.zeros(max_num_seqs, num_words(vocab_size), dtype=torch.int32, pin_memory=on_gpu)
            there = torch.empty_like(stage, device=device) if on_gpu else stage
            rows = MaskRows(stage.data_ptr(), stage.stride(0) * stage.itemsize, max_num_seqs)
            arrived = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
            self._pieces.append(MaskPiece(number, stage, there, rows, arrived))
        if self._stream is not None:  # what had the memory before may be at work still
            self._stream.wait_stream(torch.cuda.current_stream(device))
            for piece in self._pieces:  # from now on they have handles
                if piece.arrived is not None:
                    piece.arrived.record(self._stream)

    def next(self) -> MaskPiece:
        """That which nobody reads any more."""
        self._turn = (self._turn + 1) % _NUM_PIECES
        return self._pieces[self._turn]

    def send(self, piece: MaskPiece, masks: range) -> None:
        """Queue taking these masks to the device; what is queued from now on finds them there."""
        if self._stream is None or piece.arrived is None or not masks:
            return
        side, event, rows = self._stream.cuda_stream, piece.arrived.cuda_event, piece.rows
        start = masks.start * rows.row_bytes
        copy_to_device(piece.there.data_ptr() + start, rows.address + start, len(masks) * rows.row_bytes, side)
        record_event(event, side)
        wait_for_event(current_stream(self._device), event)
