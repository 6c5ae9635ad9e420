"""Copies of folded state that go their own way afterwards, much cheaper than `copy.deepcopy`.

Reports, lines, names and tokens are never changed once they are made, so copies share them; only the containers
that hold them are new.
"""

from collections import Counter, OrderedDict, deque
from copy import copy
from typing import Any, TypeVar

from pagedchat.engine.mirror import CacheMirror

T = TypeVar("T")

_CONTAINERS = (list, dict, set, deque, OrderedDict, Counter)


def with_own_containers(thing: T) -> T:
    """The same object again, with containers of its own; what is in them is shared."""
    twin = copy(thing)
    for name, value in vars(thing).items():
        if type(value) in _CONTAINERS:
            setattr(twin, name, value.copy())
    return twin


def mirror_copy(mirror: CacheMirror) -> CacheMirror:
    """A mirror that folds on by itself; sequences and lists of holders change in place, so they are new too."""
    twin = with_own_containers(mirror)
    twin.holders = [holders.copy() if holders else [] for holders in mirror.holders]
    twin.sequences = {seq_id: _sequence_copy(sequence) for seq_id, sequence in mirror.sequences.items()}
    return twin


def _sequence_copy(sequence: Any) -> Any:
    twin = copy(sequence)
    twin.token_ids = sequence.token_ids.copy()
    twin.block_table = sequence.block_table.copy()
    twin.host_block_table = sequence.host_block_table.copy()
    return twin
