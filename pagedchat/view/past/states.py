"""The engine's state at any recorded position, with the steps before it, so that timeline and event log are full.

A state is folded from a keyframe some hundred steps before it. Copies made on the way make going back by single
steps quick: the next state is folded from the nearest copy. Knows the recording, no screen.
"""

from collections import OrderedDict
from typing import NamedTuple

from pagedchat.chat.sanitize import one_line
from pagedchat.trace.format import TraceError
from pagedchat.trace.recording import NONSENSE, Recording, nonsense
from pagedchat.view.owners import unlabelled
from pagedchat.view.state.engine import EngineState

WARM_UP = 512
"""Steps folded before the one that is wanted."""
ENOUGH = 256
"""With fewer steps before it a state is not shown, unless the recording begins there."""
SPACING = 64
"""Reports between two copies."""
MAX_COPIES = 8
SMALL_POOL = 1 << 16
"""Blocks; of larger pools fewer copies are kept."""


class _Kept(NamedTuple):
    state: EngineState
    origin: int
    """The position at which its folding began."""


class PastStates:
    """States of one recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._copies: OrderedDict[int, _Kept] = OrderedDict()
        """By position; the least recently made one first."""
        self._shown: _Kept | None = None
        """The state given out last; it is folded on in place."""
        self._position = 0
        """Where that one is."""
        self._labels = recording.labels_at(0)
        self._folding: EngineState | None = None
        """The state that is being folded."""

    def at(self, position: int) -> EngineState:
        """The state at a position; the one given out before is not valid any more.

        Raises:
            TraceError: what it would be made of is damaged.
        """
        kept = self._nearest(position)
        try:
            kept = self._fold(kept or self._begin(position), position)
        except NONSENSE as error:
            self._shown = None
            raise nonsense(self.recording.step_at(position)) from error
        except TraceError:
            self._shown = None
            raise
        self._shown = kept
        kept.state.labels = self._labels
        return kept.state

    # --- where to fold from -------------------------------------------------------------------------

    def _nearest(self, position: int) -> _Kept | None:
        """The state shown, or a copy of its own of one that is kept, if folding on from there is worth it."""
        candidates = [at for at, kept in self._copies.items() if at <= position and self._is_full(kept, position)]
        nearest = max(candidates, default=-WARM_UP)
        if (
            self._shown is not None
            and nearest <= self._position <= position
            and self._is_full(self._shown, position)
        ):
            nearest, kept = self._position, self._shown
        elif candidates:
            kept = self._copies[nearest]
            kept = kept._replace(state=kept.state.copy())
        if position - nearest >= WARM_UP:
            return None
        self._position = nearest
        return kept

    def _is_full(self, kept: _Kept, position: int) -> bool:
        return kept.origin == self.recording.first or position - kept.origin >= ENOUGH

    def _begin(self, position: int) -> _Kept:
        """A state far enough before the position."""
        recording = self.recording
        before = recording.step_at(position) - WARM_UP
        start = min(position, recording.position_of(before)) if before > 0 else recording.first
        mirror = recording.mirror_at(start)
        self._position = start
        return _Kept(EngineState(recording.start.info, self._name, mirror, recording.token_texts), start)

    # --- folding ------------------------------------------------------------------------------------

    def _fold(self, kept: _Kept, position: int) -> _Kept:
        self._folding = kept.state
        for report in self.recording.reports(self._position, position):
            self._labels = self.recording.labels_at(self._position + 1)
            kept.state.fold(report)
            self._position += 1
            if self._position % SPACING == 0 and position - self._position < ENOUGH:
                self._keep(self._position, kept)
        self._labels = self.recording.labels_at(position)
        return kept

    def _keep(self, position: int, kept: _Kept) -> None:
        known = self._copies.get(position)
        if known is None or known.origin > kept.origin:
            self._copies[position] = kept._replace(state=kept.state.copy())
        self._copies.move_to_end(position)
        limit = MAX_COPIES if self.recording.start.info.num_blocks <= SMALL_POOL else 2
        while len(self._copies) > limit:
            self._copies.popitem(last=False)

    def _name(self, seq_id: int) -> str:
        """What the sequence was called when the report that is being folded was made."""
        return one_line(self._labels.get(seq_id, "")) or self._unlabelled(seq_id)

    def _unlabelled(self, seq_id: int) -> str:
        state = self._folding
        return unlabelled(seq_id, is_beam=state is not None and state.groups.is_beam(seq_id))
