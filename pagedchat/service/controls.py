"""The user's commands about the whole pool, carried out and answered in words. Knows no session and no screen."""

from pagedchat.engine.core import EngineCore
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineNotice
from pagedchat.service.commands import Evict, FlushCache, Pin, SetLimit, Unpin

PoolCommand = SetLimit | Pin | Unpin | Evict | FlushCache


def carry_out(core: EngineCore, command: PoolCommand) -> EngineNotice:
    """Do it, or say why not."""
    try:
        return EngineNotice(_done(core, command))
    except PagedChatError as error:
        return EngineNotice(error.message, error.hint, failed=True)


def _done(core: EngineCore, command: PoolCommand) -> str:
    controls = core.controls
    match command:
        case SetLimit(num_blocks):
            return _limited(core, num_blocks)
        case Pin(block_id):
            controls.pin(block_id)
            return f"Block {block_id} is pinned: it is not evicted."
        case Unpin(block_id):
            return _unpinned(controls.unpin(block_id))
        case Evict(block_id):
            controls.evict(block_id)
            return f"Block {block_id} is evicted and free."
        case FlushCache():
            count = controls.flush()
            return f"{counted(count, 'cached block')} evicted." if count else "No block was cached."


def _limited(core: EngineCore, num_blocks: int | None) -> str:
    change = core.controls.set_limit(num_blocks)
    if num_blocks is None:
        return f"No limit: all {core.limits.num_blocks} blocks can be used."
    told = [f"Limit {num_blocks}: {counted(change.num_withheld, 'block')} withheld"]
    if change.preempted:
        chats = ", ".join(map(str, change.preempted))
        told.append(f"chat{'' if len(change.preempted) == 1 else 's'} {chats} preempted")
    return f"{', '.join(told)}."


def _unpinned(block_ids: list[int]) -> str:
    if len(block_ids) == 1:
        return f"Block {block_ids[0]} is not pinned any more."
    return f"{len(block_ids)} blocks are not pinned any more." if block_ids else "No block was pinned."


def counted(count: int, noun: str) -> str:
    """`"1 block"`, `"2 blocks"`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class HeldBack:
    """Says once for every chat that it is held back by a limit or by pins, and what would let it run."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.told: set[tuple[int, int | None]] = set()
        """Who was held back after the last step, and under which limit."""

    def news(self) -> EngineNotice | None:
        """The notice to send after a step; None where nobody is held back who was not before. Not to be asked where
        nobody is held back and nobody was."""
        held_back = self._core.scheduler.held_back
        before, self.told = self.told, {(seq.seq_id, self._core.controls.limit) for seq in held_back}
        return None if self.told <= before else self._notice(held_back)

    def _notice(self, held_back: list[Sequence]) -> EngineNotice:
        needed = counted(self._core.blocks.num_blocks_for(len(held_back[0])), "block")
        if len(held_back) == 1:
            who, them = f"Chat {held_back[0].seq_id} waits: it", "it"
        else:
            who, them = f"{len(held_back)} chats wait: the next one", "them"
        reason, cures = self._reason()
        return EngineNotice(f"{who} needs {needed}, {reason}.", f"{' or '.join(cures)} lets {them} run.")

    def _reason(self) -> tuple[str, list[str]]:
        limit, pool = self._core.controls.limit, self._core.blocks.pool
        cures = [cure for cure, due in (("/limit off", limit is not None), ("/unpin", bool(pool.pinned))) if due]
        if limit is None:
            return f"and {len(pool.pinned)} of {pool.num_blocks} are pinned", cures
        return f"the limit is {limit}{f', {len(pool.pinned)} are pinned' if pool.pinned else ''}", cures
