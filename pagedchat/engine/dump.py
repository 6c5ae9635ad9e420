"""All that the engine knows of its cache, out of its own books: as a keyframe for one who begins to watch in the
middle, and as plain data for whoever has to find out why the books disagree.
"""

from typing import Any

import msgspec

from pagedchat.engine.core import EngineCore
from pagedchat.engine.keyframe import FindableFrame, Keyframe
from pagedchat.engine.mirror import MirrorSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.events import StepReport


def frame_of_engine(core: EngineCore, num_reports: int, last: StepReport | None) -> Keyframe:
    """All of it but for which blocks changed when, after whatever the engine did was reported. It shares the
    engine's lists, so it is good until the next step.

    Args:
        core: the engine.
        num_reports, last: how many reports it has made, and the last one.
    """
    pool = core.blocks.pool
    holders: dict[int, list[int]] = {}
    for seq in core.sequences.values():
        for block_id in seq.block_table:
            holders.setdefault(block_id, []).append(seq.seq_id)
    return Keyframe(
        pool.num_blocks,
        core.limits.block_size,
        core.blocks.host.pool.num_blocks,
        pool.free_blocks,
        list(pool.cached_blocks),
        pool.withheld,
        list(pool.pinned),
        holders,
        {
            entry.block_id: FindableFrame(entry.block_hash, entry.parent, entry.token_ids)
            for entry in core.blocks.cache.entries()
        },
        [_mirrored(seq) for seq in core.sequences.values()],
        {},
        num_reports,
        last,
    )


def _mirrored(seq: Sequence) -> MirrorSequence:
    group = seq.group
    return MirrorSequence(
        seq.seq_id, seq.status, seq.token_ids, seq.num_computed, seq.block_table, seq.host_block_table, seq.held,
        -1 if group is None else group.group_id, "" if group is None else group.kind,
    )  # fmt: skip


def dump_of(core: EngineCore, message: str, report: StepReport | None) -> dict[str, Any]:
    """A copy of it.

    Args:
        core: the engine.
        message: what is wrong.
        report: of the step in which that was found; None where it was broken off.
    """
    pool, host = core.blocks.pool, core.blocks.host.pool
    found = {
        "message": message,
        "limits": core.limits,
        "report": report,
        "pool": {
            "ref_counts": pool.ref_counts,
            "free_blocks": pool.free_blocks,
            "cached_blocks": list(pool.cached_blocks),
            "withheld": pool.withheld,
            "pinned": list(pool.pinned),
        },
        "host_ref_counts": host.ref_counts,
        "findable": [
            {
                "block_id": entry.block_id,
                "hash": entry.block_hash.hex(),
                "parent": entry.parent.hex(),
                "token_ids": entry.token_ids,
            }
            for entry in core.blocks.cache.entries()
        ],
        "sequences": [_sequence(seq) for seq in core.sequences.values()],
    }
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


def _sequence(seq: Sequence) -> dict[str, Any]:
    return {
        "seq_id": seq.seq_id,
        "status": seq.status,
        "num_tokens": len(seq),
        "num_computed": seq.num_computed,
        "writable_len": seq.writable_len,
        "block_table": seq.block_table,
        "host_block_table": seq.host_block_table,
        "hashes": [block_hash.hex() for block_hash in seq.block_hashes],
    }
