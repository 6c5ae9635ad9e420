"""What the reports tell of one sequence."""

import msgspec

from pagedchat.events import SequenceStatus


class MirrorSequence(msgspec.Struct, array_like=True):
    """Fields as in `engine.sequence.Sequence`."""

    seq_id: int
    status: SequenceStatus = "parked"
    token_ids: list[int] = msgspec.field(default_factory=list)
    num_computed: int = 0
    block_table: list[int] = msgspec.field(default_factory=list)
    host_block_table: list[int] = msgspec.field(default_factory=list)
