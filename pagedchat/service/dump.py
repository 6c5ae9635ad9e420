"""All that the engine knows of its cache, in a JSON file, for whoever has to find out why the books disagree."""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pagedchat.engine.core import EngineCore
from pagedchat.engine.sequence import Sequence
from pagedchat.events import StepReport
from pagedchat.private_files import write_file

log = logging.getLogger("pagedchat.engine")


def write_dump(core: EngineCore, message: str, report: StepReport, directory: Path | None) -> str:
    """Write the dump.

    Args:
        core: the engine.
        message: what is wrong.
        report: of the step in which that was found.
        directory: where the file goes; None writes none.

    Returns:
        The file's path; empty where it could not be written.
    """
    if directory is None:
        return ""
    path = directory / f"integrity-{datetime.now(UTC):%Y%m%d-%H%M%S}-step-{report.step}.json"
    try:
        write_file(path, msgspec.json.format(msgspec.json.encode(contents(core, message, report)), indent=1))
    except OSError:
        log.exception("The dump could not be written.")
        return ""
    return str(path)


def contents(core: EngineCore, message: str, report: StepReport) -> dict[str, Any]:
    """The dump as plain data."""
    pool, host = core.blocks.pool, core.blocks.host.pool
    return {
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
