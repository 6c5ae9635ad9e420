"""The tokens of captured decodes under rules of their sequences' own: launches behind the graph.

The graph has chosen the most likely tokens, and has left logits; behind it rules that name tokens make others of
these, and tokens are drawn from them, as far as masks of forms allow, in place of the first ones. It needs no graph
of its own, and such steps are begun ahead like others.

Where a rule follows the tokens that came before, the graph alone is begun ahead. Masks of forms are then made while
it computes: as soon as the tokens are known, before anybody else does anything with them, and the tokens of the
step are chosen at once. Bad words of several tokens wait until the step is asked for.

Rows without rules are drawn as their parameters say. Knows no graphs.
"""

from dataclasses import replace

import torch

from pagedchat.ops.sampling.row_rules import AppliedRules, PackedRules
from pagedchat.ops.sampling.sample import NextDraw
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.runtime.graphs.decode.ahead import Ruled, RuledDraw, RunningStep
from pagedchat.runtime.graphs.decode.formed import FormedRows, MaskMemory, MaskPiece
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers
from pagedchat.runtime.step.rules import NO_RULES, rules_of, upload_rules
from pagedchat.runtime.step.sampler import any_ruled, op_rows
from pagedchat.runtime.step.sampling_row import rows_of
from pagedchat.runtime.step.upload import int32, upload
from pagedchat.runtime.structured.form_rows import FormRows

_PADDING = SampleRow(stays=True)


class RuledSteps:
    """Chooses the tokens of steps under rules.

    Args:
        buffers: the steps' memory.
        device: where they run.
    """

    def __init__(self, buffers: StateBuffers, device: torch.device) -> None:
        self._buffers = buffers
        self._device = device
        self._masks: MaskMemory | None = None

    def prepare(self, running: RunningStep) -> None:
        """Queue telling the device of the rules of a batch that is new, if there are any."""
        if not any_ruled(running.sequences):
            return
        sampling = [_PADDING] * running.bucket.num_seqs
        for row, packed in zip(running.rows, op_rows(rows_of(running.sequences)), strict=True):
            sampling[row] = packed
        forms = FormRows(running.sequences)
        mask_rows = [-1] * running.bucket.num_seqs
        for row, sequence in zip(running.rows, running.sequences, strict=True):
            mask_rows[row] = forms.row_of(sequence)
        there, mask_rows_there = upload([pack_rows(sampling), int32(mask_rows)], self._device)
        running.ruled = Ruled(
            rules=self._rules(running) if any(params.names_tokens for params in running.params) else None,
            sampling=there,
            forms=FormedRows(forms, mask_rows_there) if len(forms) else None,
            has_long_bad_words=any(params.has_long_bad_words for params in running.params),
        )

    def follow(self, running: RunningStep, ruled: Ruled) -> Ruled:
        """The rules of a step for which others were told, now that the tokens before it are known."""
        return replace(ruled, rules=self._rules(running), draws={}) if ruled.has_long_bad_words else ruled

    def _rules(self, running: RunningStep) -> PackedRules:
        rules = [NO_RULES] * running.bucket.num_seqs
        for row, each in zip(running.rows, rows_of(running.sequences), strict=True):
            rules[row] = rules_of(each)
        return upload_rules(rules, self._device)

    @torch.inference_mode()
    def queue(self, running: RunningStep, ruled: Ruled, logits: torch.Tensor) -> None:
        """Queue choosing the tokens of a step that is queued, in place of those that it has chosen.

        Args:
            running: the step.
            ruled: its rules.
            logits: `[num_seqs, vocab_size]`, that it leaves.
        """
        forms = ruled.forms
        if forms is None:
            self._draw(running, ruled, logits)
            return
        forms.piece = self._next_piece()  # the host follows the replies while the device computes the logits
        forms.rows.follow(running.sequences, forms.piece.rows)
        self._draw(running, ruled, logits, range(len(forms.rows)))

    @torch.inference_mode()
    def queue_early(self, running: RunningStep, ruled: Ruled, logits: torch.Tensor) -> bool:
        """The same for a step that is not asked for yet, by the tokens that it will compute (`token_ids`).

        Returns:
            False, with nothing done, where it has to wait until sequences have those.
        """
        forms = ruled.forms
        if forms is None or forms.piece is None or ruled.has_long_bad_words:
            return False
        masks = forms.piece.rows
        changed = forms.rows.go_on(running.sequences, running.starts, running.token_ids, masks)
        if changed is None:
            return False
        self._draw(running, ruled, logits, changed)
        forms.rows.catch_up()
        return True

    def _next_piece(self) -> MaskPiece:
        if self._masks is None:
            max_num_seqs, vocab_size = self._buffers.counts.shape
            self._masks = MaskMemory(max_num_seqs, vocab_size, self._device)
        return self._masks.next()

    def _draw(self, running: RunningStep, ruled: Ruled, logits: torch.Tensor, new_masks: range = range(0)) -> None:
        piece, number = None if ruled.forms is None else ruled.forms.piece, -1
        if piece is not None and self._masks is not None:
            self._masks.send(piece, new_masks)
            number = piece.number
        known = ruled.draws.get(number)
        if known is None or known.logits is not logits:
            known = ruled.draws[number] = self._made_draw(running, ruled, logits, piece)
        if known.applied is not None:
            known.applied.launch()
        known.draw.launch()

    def _made_draw(
        self, running: RunningStep, ruled: Ruled, logits: torch.Tensor, piece: MaskPiece | None
    ) -> RuledDraw:
        state = self._buffers.state(running.bucket)
        masks = None if ruled.forms is None or piece is None else ruled.forms.masks_in(piece)
        # What one piece's launches have applied the rules to, those of another may write again.
        of_others = [each.applied for each in ruled.draws.values() if each.logits is logits]
        applied = of_others[0] if of_others else None
        if applied is None and ruled.rules is not None:
            applied = AppliedRules(logits, ruled.rules, state.positions)
        by = logits if applied is None else applied.ruled
        return RuledDraw(logits, applied, NextDraw(state, by, ruled.sampling, self._buffers.counts, masks))
