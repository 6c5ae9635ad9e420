"""What must hold between an engine and its mirror at any moment."""

from collections import Counter

from pagedchat.engine import keyframe
from pagedchat.engine.core import EngineCore
from pagedchat.engine.dump import frame_of_engine
from pagedchat.engine.mirror import CacheMirror

FRAMES_APART = 5
"""Reports from one look at what the engine tells of its cache at once to the next."""


def assert_replies(expected: dict[int, list[int]], engine: EngineCore) -> None:
    """Every reply is what it must be so far; those that are done are whole, and are taken from `expected`."""
    for seq_id, reply in list(expected.items()):
        seq = engine.sequences[seq_id]
        assert seq.output_token_ids == reply[: len(seq.output_token_ids)]
        if seq.finish_reason == "error":
            assert seq_id in engine.failures
            del expected[seq_id]
        elif seq.status == "parked":
            assert seq.output_token_ids == reply
            del expected[seq_id]


def copied(mirror: CacheMirror) -> CacheMirror:
    """A mirror that went through bytes."""
    return keyframe.restore(keyframe.decode(keyframe.encode(mirror)))


def assert_mirror_equals(mirror: CacheMirror, engine: EngineCore) -> None:
    pool, host = engine.blocks.pool, engine.blocks.host.pool
    assert mirror.ref_counts == pool.ref_counts
    assert mirror.free_blocks == pool.free_blocks
    assert list(mirror.cached_blocks) == list(pool.cached_blocks)
    assert mirror.host_ref_counts == host.ref_counts
    assert list(mirror.withheld) == pool.withheld
    assert list(mirror.pinned) == list(pool.pinned)
    entries = {entry.block_id: entry for entry in engine.blocks.cache.entries()}
    assert {b for b, h in enumerate(mirror.block_hashes) if h is not None} == entries.keys()
    for block_id, entry in entries.items():
        assert mirror.block_hashes[block_id] == entry.block_hash
        assert mirror.block_parents[block_id] == entry.parent
        assert mirror.block_tokens[block_id] == entry.token_ids
    assert mirror.sequences.keys() == engine.sequences.keys()
    for seq_id, seq in engine.sequences.items():
        seen = mirror.sequences[seq_id]
        assert (seen.status, seen.num_computed) == (seq.status, seq.num_computed), seq
        assert seen.token_ids == seq.token_ids
        assert seen.held == seq.held, seq
        assert seen.group_id == (-1 if seq.group is None else seq.group.group_id), seq
        assert seen.block_table == seq.block_table
        assert seen.host_block_table == seq.host_block_table
    holders: list[list[int]] = [[] for _ in mirror.holders]
    for seq_id, seq in engine.sequences.items():
        for block_id in set(seq.block_table):
            holders[block_id].append(seq_id)
    assert [sorted(each) for each in mirror.holders] == [sorted(each) for each in holders]
    assert mirror.last is not None
    counts = mirror.last.pool
    assert counts.free + counts.cached + counts.in_use + counts.withheld == counts.total
    assert (counts.withheld, counts.pinned) == (len(pool.withheld), len(pool.pinned))
    states = Counter(mirror.state(block_id) for block_id in range(mirror.num_blocks))
    told = {"free": counts.free, "cached": counts.cached, "in_use": counts.in_use, "withheld": counts.withheld}
    assert states == Counter(told)
    assert counts.table_entries == sum(len(seq.block_table) for seq in engine.sequences.values())
    assert counts.shared == sum(count > 1 for count in mirror.ref_counts)
    if mirror.num_reports % FRAMES_APART == 0:
        assert_frame_equals(mirror, engine)


def assert_frame_equals(mirror: CacheMirror, engine: EngineCore) -> None:
    """What the engine tells of its cache at once is what its reports have told, but for what changed when."""
    frame = frame_of_engine(engine, mirror.num_reports, mirror.last)
    told = keyframe.restore(keyframe.decode(keyframe.encoded(frame)))
    differ = {name for name, value in vars(told).items() if value != getattr(mirror, name)}
    assert differ <= {"holders", "touched"}, differ
    assert list(map(sorted, told.holders)) == list(map(sorted, mirror.holders))
    assert told.touched == {}
