"""All that the engine knows of its cache, as plain data, for whoever has to find out why the books disagree."""

from typing import Any

import msgspec

from pagedchat.engine.core import EngineCore
from pagedchat.engine.sequence import Sequence
from pagedchat.events import StepReport


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
