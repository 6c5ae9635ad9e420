"""What became of a group of sequences, the beams of a search or several answers: who was grown, copied and pruned.

Listens to the fold. What lives of a group now, the mirror knows (`tree`).
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pagedchat.cache_events import (
    BeamsScored,
    BlockCopied,
    BlocksFreed,
    GroupKind,
    SequenceForked,
    SequenceGrouped,
)
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.view.state.fold import Hears

MAX_GROUPS = 16
"""Of which is known at a time."""
MAX_PRUNED = 12
"""Of a group, members given up last of which is known."""


class Pruned(NamedTuple):
    """A member that was given up."""

    seq_id: int
    step: int
    """After which."""
    token_ids: tuple[int, ...]
    """Its last tokens."""
    given_back: tuple[int, ...]
    """Blocks that nobody else held, and that others could have."""
    num_shared: int
    """Blocks that others hold on to."""


LAST_TOKENS = 12
"""Of a member that was given up."""


@dataclass(frozen=True, slots=True)
class GroupStory:
    """One group."""

    group_id: int
    kind: GroupKind
    size: int
    """Members that it is for."""
    first_step: int
    """Before which it began."""
    num_grown: int = 0
    """Forks that were made for it."""
    num_copied: int = 0
    """Blocks that its members copied to write on in them."""
    num_pruned: int = 0
    """Members that were given up for likelier ones."""
    num_ended: int = 0
    """Members that were closed when it was over."""
    pruned: tuple[Pruned, ...] = field(default=(), repr=False)
    """The last of them, the latest last."""
    scores: Mapping[int, float] = field(default_factory=dict, repr=False)
    """Of each beam that lives the sum of its tokens' log-probabilities, the likeliest first."""


class GroupStories:
    """Those of all groups, as far as `mirror` has been folded."""

    def __init__(self, mirror: CacheMirror) -> None:
        self._mirror = mirror
        self._stories: OrderedDict[int, GroupStory] = OrderedDict()
        """By group; the one that began last is the last."""
        self._beams: set[int] = set()
        """Members of searches, those that are gone too."""

    def hears(self) -> Hears:
        """What happens to members."""
        return {
            SequenceGrouped: self._grouped, SequenceForked: self._forked,
            BlockCopied: self._copied, BlocksFreed: self._freed, BeamsScored: self._scored,
        }  # fmt: skip

    def take(self, report: StepReport) -> None:
        """A batch alone changes nothing."""

    def copy(self, mirror: CacheMirror) -> "GroupStories":
        """The same, to follow a copy of the mirror."""
        twin = GroupStories(mirror)
        twin._stories, twin._beams = self._stories.copy(), self._beams.copy()
        return twin

    def is_beam(self, seq_id: int) -> bool:
        """Whether a sequence is, or was, a beam of a search."""
        if seq_id in self._beams:
            return True
        sequence = self._mirror.sequences.get(seq_id)
        return sequence is not None and sequence.group_kind == "beams"

    @property
    def last(self) -> GroupStory | None:
        """The group that began last."""
        return next(reversed(self._stories.values()), None)

    def _grouped(self, event: SequenceGrouped) -> None:
        if event.kind == "beams":
            self._beams.add(event.seq_id)
        self._stories[event.group_id] = GroupStory(event.group_id, event.kind, event.size, self._step)
        self._stories.move_to_end(event.group_id)
        if len(self._stories) > MAX_GROUPS:
            self._stories.popitem(last=False)

    def _forked(self, event: SequenceForked) -> None:
        story = self._story_of(event.seq_id) if event.grouped else None
        if story is not None:
            self._stories[story.group_id] = replace(story, num_grown=story.num_grown + 1)
            if story.kind == "beams":
                self._beams.add(event.child_id)

    def _scored(self, event: BeamsScored) -> None:
        story = self._story_of(event.seq_ids[0])
        if story is not None:
            scores = dict(zip(event.seq_ids, event.cum_logprobs, strict=False))
            self._stories[story.group_id] = replace(story, scores=scores)

    def _copied(self, event: BlockCopied) -> None:
        story = self._story_of(event.seq_id) if event.cause in ("beam", "answer") else None
        if story is not None:
            self._stories[story.group_id] = replace(story, num_copied=story.num_copied + 1)

    def _freed(self, event: BlocksFreed) -> None:
        story = self._story_of(event.seq_id) if event.cause else None
        if story is None:
            return
        if event.cause == "ended":
            self._stories[story.group_id] = replace(story, num_ended=story.num_ended + 1)
            return
        pruned = (*story.pruned, self._pruned(event))[-MAX_PRUNED:]
        self._stories[story.group_id] = replace(story, num_pruned=story.num_pruned + 1, pruned=pruned)

    def _pruned(self, event: BlocksFreed) -> Pruned:
        counts = self._mirror.ref_counts
        alone = tuple(block_id for block_id in event.block_ids if counts[block_id] == 1)
        token_ids = self._mirror.sequences[event.seq_id].token_ids
        return Pruned(
            event.seq_id, self._step, tuple(token_ids[-LAST_TOKENS:]), alone, len(event.block_ids) - len(alone)
        )

    def _story_of(self, seq_id: int) -> GroupStory | None:
        """Of the group of a sequence; a group that began before all that was folded has none yet."""
        sequence = self._mirror.sequences.get(seq_id)
        if sequence is None or sequence.group_id < 0:
            return None
        known = self._stories.get(sequence.group_id)
        if known is None:
            known = GroupStory(sequence.group_id, sequence.group_kind, 0, self._step)
            self._stories[sequence.group_id] = known
        return known

    @property
    def _step(self) -> int:
        """The last step before what is being folded."""
        return self._mirror.last.step if self._mirror.last is not None else 0
