"""The tokens of captured decodes under rules of their sequences' own: two more launches behind the graph.

The graph has chosen the most likely tokens, and has left logits; behind it the rules make others of these, and
tokens are drawn from them in place of the first ones. It needs no graph of its own, and such steps are begun ahead
like others. Where a rule follows the tokens that came before (a bad word of several tokens, a form), the graph
alone is begun ahead: while the device computes logits the host takes in the tokens before; then tokens are chosen.
Rows without rules are drawn as their parameters say. Knows no graphs.
"""

from dataclasses import replace

import torch

from pagedchat.ops.sampling.row_rules import PackedRules, apply_rules
from pagedchat.ops.sampling.sample import draw_next
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.runtime.graphs.decode.ahead import Ruled, RunningStep
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers
from pagedchat.runtime.step.rules import NO_RULES, rules_of, upload_rules
from pagedchat.runtime.step.sampler import any_ruled, op_rows
from pagedchat.runtime.step.sampling_row import rows_of
from pagedchat.runtime.step.upload import upload
from pagedchat.runtime.structured.masks import hold_to_forms

_PADDING = SampleRow(temperature=0)


class RuledSteps:
    """Chooses the tokens of steps under rules.

    Args:
        buffers: the steps' memory.
        device: where they run.
    """

    def __init__(self, buffers: StateBuffers, device: torch.device) -> None:
        self._buffers = buffers
        self._device = device

    def prepare(self, running: RunningStep) -> None:
        """Queue telling the device of the rules of a batch that is new, if there are any."""
        if not any_ruled(running.sequences):
            return
        sampling = [_PADDING] * running.bucket.num_seqs
        for row, packed in zip(running.rows, op_rows(rows_of(running.sequences)), strict=True):
            sampling[row] = packed
        [there] = upload([pack_rows(sampling)], self._device)
        follows = any(params.follows_tokens for params in running.params)
        running.ruled = Ruled(self._rules(running), there, follows)

    def follow(self, running: RunningStep, ruled: Ruled) -> Ruled:
        """The rules of a step for which others were told, now that the tokens before it are known."""
        if not any(params.bad_words_ids for params in running.params):
            return ruled  # masks of forms are made when tokens are chosen
        return replace(ruled, rules=self._rules(running))

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
        state = self._buffers.state(running.bucket)
        under_rules = apply_rules(logits, ruled.rules, state.positions)
        # The host follows the replies while the device computes the logits.
        under_rules = hold_to_forms(under_rules, running.by_row)
        draw_next(state, under_rules, ruled.sampling, self._buffers.counts)
