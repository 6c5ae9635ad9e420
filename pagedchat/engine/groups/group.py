"""Sequences that answer one prompt together: forks of one another, in the order in which they came.

Data only: it knows the ids of its members, neither their tokens nor their blocks.
"""

from pagedchat.cache_events import CopyCause, GroupKind


class SequenceGroup:
    """What `Sequence.group` names.

    Args:
        kind: what its members are to each other.
        first_id: the sequence that computes the prompt; the group has its number.
    """

    def __init__(self, kind: GroupKind, first_id: int) -> None:
        self.kind: GroupKind = kind
        self.copy_cause: CopyCause = "beam" if kind == "beams" else "answer"
        """Why a member copies a block that others hold too."""
        self.group_id = first_id
        self.seq_ids = [first_id]
        """Its members: of answers all there were, of beams those that live, the best first."""
