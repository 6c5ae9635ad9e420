"""Steps that verified drafts: which slots were written to, and which of them hold. Listens to the fold."""

from collections import deque
from typing import NamedTuple

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.step_batch import DecodeBatch
from pagedchat.view.state.fold import Hears

MAX_STEPS = 64
"""Of which is known."""


class DraftStep(NamedTuple):
    """One sequence's draft in one step.

    ::

        | before ... | t | accepted ... | rejected ... |      t is the token that was there before
                      ^ position
    """

    step: int
    seq_id: int
    position: int
    """Of the token behind which the draft was, in the sequence: it was computed in the same step."""
    num_accepted: int
    num_rejected: int
    """Slots that will be written again."""
    blocks: tuple[int, ...]
    """Those of the sequence from the one on that has that token, as far as it kept them."""
    token_ids: tuple[int, ...]
    """What came of it: the accepted tokens and one more."""


class DraftStories:
    """The last of them, as far as `mirror` has been folded."""

    def __init__(self, mirror: CacheMirror) -> None:
        self._mirror = mirror
        self.steps: deque[DraftStep] = deque(maxlen=MAX_STEPS)
        """The latest last."""

    def hears(self) -> Hears:
        """Drafts are told with the batch."""
        return {}

    def take(self, report: StepReport) -> None:
        """Steps of nothing but single tokens have no drafts."""
        if type(report.batch) is DecodeBatch:
            return
        for entry in report.batch:
            sequence = self._mirror.sequences.get(entry.seq_id)
            if entry.num_drafted and sequence is not None:
                position = sequence.num_computed - entry.num_decode
                blocks = tuple(sequence.block_table[position // self._mirror.block_size :])
                rejected = entry.num_drafted - entry.num_accepted
                tokens = tuple(entry.token_ids)
                step = DraftStep(report.step, entry.seq_id, position, entry.num_accepted, rejected, blocks, tokens)
                self.steps.append(step)

    def copy(self, mirror: CacheMirror) -> "DraftStories":
        """The same, to follow a copy of the mirror."""
        twin = DraftStories(mirror)
        twin.steps = self.steps.copy()
        return twin
