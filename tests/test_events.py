"""Events as they are read: a batch of plain decodes stands for a list of entries."""

import msgspec

from pagedchat.events import EngineReady
from pagedchat.step_batch import BatchEntry, DecodeBatch
from tests.service.fake_engine import ready_info

ENTRIES = [BatchEntry(3, 0, 1, [7]), BatchEntry(1, 0, 1, [9]), BatchEntry(4, 0, 1, [8])]
BATCH = DecodeBatch([3, 1, 4], [7, 9, 8])


def test_a_batch_of_decodes_reads_as_its_entries() -> None:
    assert (list(BATCH), len(BATCH), BATCH[1], BATCH[-1]) == (ENTRIES, 3, ENTRIES[1], ENTRIES[2])
    assert BATCH[:2] == ENTRIES[:2]
    assert bool(BATCH)
    assert not DecodeBatch([], [])


def test_a_batch_of_decodes_equals_its_entries_and_no_others() -> None:
    batch = DecodeBatch([3, 1, 4], [7, 9, 8])
    entries = list(batch)
    assert batch == ENTRIES
    assert entries == batch
    assert batch == DecodeBatch([3, 1, 4], [7, 9, 8])
    others = ENTRIES[:2], DecodeBatch([3, 1, 4], [7, 9, 9]), DecodeBatch([3, 1, 5], [7, 9, 8]), "a batch"
    assert all(batch != other for other in others)


def test_an_engine_of_before_its_kernels_were_told_is_read_from_a_recording() -> None:
    """Fields are told by their places: a new one stands behind all others."""
    told = ready_info(attention_backend="cuda", attention_reason="Why.", draft_model="small", kernels="cuda")
    *older, last = msgspec.msgpack.decode(msgspec.msgpack.encode(told))
    assert last == "cuda"
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=EngineReady)
    assert read == msgspec.structs.replace(told, kernels="")
