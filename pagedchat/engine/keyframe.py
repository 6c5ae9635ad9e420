"""The whole state of a `CacheMirror` as bytes, for a trace that is to be entered in the middle.

Only what cannot be derived is kept, and of a block only what there is to say: reference counts follow from the
holders, and a free block has nothing but its place in a list. What is read is checked before it is believed. This
module knows the fields, not how reports change them.
"""

from collections import OrderedDict

import msgspec

from pagedchat.engine.mirror import CacheMirror, MirrorSequence
from pagedchat.events import StepReport


class FindableFrame(msgspec.Struct, array_like=True):
    """What is known of a block that can be found."""

    block_hash: bytes
    parent: bytes
    token_ids: tuple[int, ...]


class Keyframe(msgspec.Struct, array_like=True, tag="keyframe-1"):
    """All of a mirror. Lists are in the mirror's order; the tag changes when the fields do."""

    num_blocks: int
    block_size: int
    num_host_blocks: int
    free_blocks: list[int]
    cached_blocks: list[int]
    withheld: list[int]
    pinned: list[int]
    holders: dict[int, list[int]]
    """Only of the blocks that are in use."""
    findable: dict[int, FindableFrame]
    sequences: list[MirrorSequence]
    touched: dict[int, int]
    num_reports: int
    last: StepReport | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Keyframe)


def encode(mirror: CacheMirror) -> bytes:
    """Everything that the mirror knows."""
    return encoded(frame_of(mirror))


def encoded(frame: Keyframe) -> bytes:
    """The frame as `decode` takes it."""
    return _encoder.encode(frame)


def decode(data: bytes) -> Keyframe:
    """The state that `encode` was given; `restore` makes a mirror of it.

    Raises:
        ValueError: these are not the bytes of a frame, or the frame contradicts itself.
    """
    try:
        frame = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not a keyframe: {error}") from error
    _check_blocks(frame)
    _check_sequences(frame)
    return frame


def _check_blocks(frame: Keyframe) -> None:
    """Every block is in exactly one place, and whatever names a block names one that exists."""
    idle_pinned = [block_id for block_id in frame.pinned if block_id not in frame.holders]
    places = [*frame.free_blocks, *frame.cached_blocks, *frame.withheld, *idle_pinned, *frame.holders]
    if frame.num_blocks != len(places) or sorted(places) != list(range(frame.num_blocks)):
        raise ValueError(f"the keyframe does not have each of its {frame.num_blocks} blocks in one place")
    known = range(frame.num_blocks)
    if not all(block_id in known for block_id in [*frame.findable, *frame.touched, *frame.pinned]):
        raise ValueError("the keyframe names a block that does not exist")
    if not all(block_id in frame.findable for block_id in [*frame.cached_blocks, *frame.pinned]):
        raise ValueError("the keyframe has a cached or pinned block that cannot be found")


def _check_sequences(frame: Keyframe) -> None:
    """The holders are those whose block tables say so, and each sequence fits its tables."""
    held: dict[int, list[int]] = {block_id: [] for block_id in frame.holders}
    hosts = range(frame.num_host_blocks)
    for seq in frame.sequences:
        for block_id in seq.block_table:
            held.setdefault(block_id, []).append(seq.seq_id)
        if not all(host_id in hosts for host_id in seq.host_block_table):
            raise ValueError("the keyframe names a host block that does not exist")
    if len({seq.seq_id for seq in frame.sequences}) != len(frame.sequences):
        raise ValueError("the keyframe has a sequence twice")
    if {b: sorted(ids) for b, ids in held.items()} != {b: sorted(ids) for b, ids in frame.holders.items()}:
        raise ValueError("the keyframe's holders differ from its block tables")


def frame_of(mirror: CacheMirror) -> Keyframe:
    """The mirror's state. It shares the mirror's lists, so it is good until the next report."""
    return Keyframe(
        mirror.num_blocks,
        mirror.block_size,
        len(mirror.host_ref_counts),
        mirror.free_blocks,
        list(mirror.cached_blocks),
        list(mirror.withheld),
        list(mirror.pinned),
        {block_id: seq_ids for block_id, seq_ids in enumerate(mirror.holders) if seq_ids},
        {
            block_id: FindableFrame(block_hash, mirror.block_parents[block_id], mirror.block_tokens[block_id])
            for block_id, block_hash in enumerate(mirror.block_hashes)
            if block_hash is not None
        },
        list(mirror.sequences.values()),
        mirror.touched,
        mirror.num_reports,
        mirror.last,
    )


def restore(frame: Keyframe) -> CacheMirror:
    """A mirror with the frame's state; the frame's lists are the mirror's from now on.

    NOTE: it takes memory for as many host blocks as the frame claims; of a frame from outside, check that first.
    """
    mirror = CacheMirror(frame.num_blocks, frame.block_size, frame.num_host_blocks)
    mirror.free_blocks = frame.free_blocks
    mirror.cached_blocks = OrderedDict.fromkeys(frame.cached_blocks)
    mirror.withheld, mirror.pinned = dict.fromkeys(frame.withheld), dict.fromkeys(frame.pinned)
    for block_id, seq_ids in frame.holders.items():
        mirror.holders[block_id], mirror.ref_counts[block_id] = seq_ids, len(seq_ids)
    for block_id, known in frame.findable.items():
        mirror.block_hashes[block_id], mirror.block_parents[block_id] = known.block_hash, known.parent
        mirror.block_tokens[block_id] = known.token_ids
    mirror.sequences = {seq.seq_id: seq for seq in frame.sequences}
    for seq in frame.sequences:
        for host_id in seq.host_block_table:
            mirror.host_ref_counts[host_id] += 1
    mirror.touched, mirror.num_reports, mirror.last = frame.touched, frame.num_reports, frame.last
    return mirror
