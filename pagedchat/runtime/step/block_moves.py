"""Carries out what the engine decided about blocks: an ordered list of copies and swaps, in few operations."""

from collections.abc import Iterable, Iterator

from pagedchat.engine.output import BlockOp
from pagedchat.runtime.attention.backend import AttentionBackend


def apply_block_ops(backend: AttentionBackend, ops: list[BlockOp]) -> None:
    """Move blocks as if one after the other, and take the moves off the list as they are carried out.

    A block written by one op may be read or written again by a later one.
    """
    move = {"copy": backend.copy_blocks, "swap_out": backend.swap_out, "swap_in": backend.swap_in}
    for group in list(independent_groups(ops)):
        move[group[0].kind]([op.src for op in group], [op.dst for op in group])
        del ops[: len(group)]


def independent_groups(ops: Iterable[BlockOp]) -> Iterator[list[BlockOp]]:
    """Cut the list into runs of one kind that may read everything first and write everything after.

    Within a run no op reads or writes what an earlier one wrote. (One that overwrites what an earlier one reads
    does no harm: reads come first.)
    """
    group: list[BlockOp] = []
    written: set[int] = set()
    for op in ops:
        reads_written = op.kind == "copy" and op.src in written
        if group and (op.kind != group[0].kind or op.dst in written or reads_written):
            yield group
            group, written = [], set()
        group.append(op)
        written.add(op.dst)
    if group:
        yield group
