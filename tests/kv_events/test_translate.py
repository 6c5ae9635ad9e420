"""What a stranger who reads the payloads knows is what our prefix cache has, after every operation."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat import cache_events as ce
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.events import StepReport
from pagedchat.kv_events.schema import ENCODINGS, encode
from pagedchat.kv_events.translate import BlockEventTranslator, as_bytes, as_int, changes_of
from tests.engine.test_core import make_engine
from tests.engine.walk import Walk
from tests.kv_events.subscriber import Tree

NAMES = {"int": as_int, "bytes": as_bytes}


class Told:
    """What is told of an engine, report by report."""

    def __init__(self, engine: EngineCore, encoding: str = "map", hashes: str = "int") -> None:
        self.entry = engine.blocks.cache.entry
        self.translator = BlockEventTranslator(ENCODINGS[encoding], engine.limits.block_size, NAMES[hashes])

    def of(self, report: StepReport) -> list:
        return self.translator.translate(changes_of(report, self.entry))


def findable(engine: EngineCore, hashes: str = "int") -> dict:
    """The prefix tree as the engine has it."""
    name = NAMES[hashes]
    return {
        name(entry.block_hash): (name(entry.parent) if entry.parent else None, tuple(entry.token_ids))
        for entry in engine.blocks.cache.entries()
    }


class ToldWalk(Walk):
    """A workload of which a stranger is told."""

    def __init__(self, seed: int, encoding: str, hashes: str) -> None:
        super().__init__(seed)
        self.hashes = hashes
        self.told = Told(self.engine, encoding, hashes)
        self.tree = Tree(encoding)
        self.num_told = 0

    def note(self, report: StepReport) -> None:
        super().note(report)
        events = self.told.of(report)
        self.num_told += len(events)
        self.tree.take(encode(0.0, events))

    def check(self) -> None:
        super().check()
        assert self.tree.blocks == findable(self.engine, self.hashes)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["map", "array"]), st.sampled_from(["int", "bytes"]))
def test_a_stranger_knows_the_prefix_tree_after_every_operation(seed, encoding, hashes):
    ToldWalk(seed, encoding, hashes).run(120)


def test_walks_tell_of_something():
    walk = ToldWalk(7, "map", "int")
    walk.run(200)
    assert walk.num_told > 20


# --- the form -----------------------------------------------------------------------------------------


def reports_of(engine: EngineCore, prompt: list[int]) -> Iterator[StepReport]:
    """Of a prompt and its one token, as they come."""
    seq_id = engine.open()
    engine.extend(seq_id, prompt, SamplingParams(max_tokens=1))
    while engine.has_work:
        yield engine.step()
    engine.close(seq_id)
    yield engine.flush()


def told(encoding: str) -> list:
    """Of a prompt of two blocks and of another one that pushes a part of it out, as anybody reads it."""
    engine = make_engine(num_blocks=3)
    events = Told(engine, encoding)
    payloads = [
        encode(1.5, found)
        for prompt in (list(range(8)), [9] * 8)
        for report in reports_of(engine, prompt)
        if (found := events.of(report))
    ]
    return [msgspec.msgpack.decode(payload) for payload in payloads]


def test_events_are_maps_in_an_array_as_vllm_has_them_now():
    first, *rest = told("map")
    assert first[0] == 1.5
    assert first[2] == 0
    (stored,) = first[1]
    one, two = stored.pop("block_hashes")
    assert all(isinstance(each, int) and 0 <= each < 2**64 for each in (one, two))
    assert stored == {
        "type": "BlockStored",
        "parent_block_hash": None,
        "token_ids": list(range(8)),
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None, None],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    removed = [event for batch in rest for event in batch[1] if event["type"] == "BlockRemoved"]
    assert {"type": "BlockRemoved", "block_hashes": [two], "medium": "GPU", "group_idx": 0} in removed


def test_arrays_begin_with_what_old_readers_know():
    first, *rest = told("array")
    (stored,) = first[1]
    assert [stored[0], *stored[2:7]] == ["BlockStored", None, list(range(8)), 4, None, "GPU"]
    assert stored[7:] == [None, [None, None], 0, "full_attention", None]
    removed = [event for batch in rest for event in batch[1] if event[0] == "BlockRemoved"]
    assert ["BlockRemoved", [stored[1][1]], "GPU", 0] in removed


def test_a_block_behind_others_names_its_parent():
    engine = make_engine(num_blocks=8)
    events = Told(engine)
    for report in reports_of(engine, list(range(4))):
        events.of(report)
    found = [event for report in reports_of(engine, list(range(8))) for event in events.of(report)]
    (stored,) = found
    assert stored.parent_block_hash in findable(engine)
    assert stored.token_ids == [4, 5, 6, 7]


@pytest.mark.parametrize("encoding", ["map", "array"])
def test_the_beginning_of_an_engine_is_told(encoding):
    cleared = msgspec.msgpack.decode(encode(2.0, [ENCODINGS[encoding].cleared()]))
    assert cleared == [2.0, [{"type": "AllBlocksCleared"} if encoding == "map" else ["AllBlocksCleared"]], 0]


def test_what_is_no_change_for_others_is_not_told():
    engine = make_engine(num_blocks=8)
    events = Told(engine)
    seq_id = engine.open()
    engine.extend(seq_id, list(range(8)), SamplingParams(max_tokens=1))
    while engine.has_work:
        events.of(engine.step())
    engine.fork(seq_id)
    report = engine.flush()
    assert any(isinstance(event, ce.SequenceForked) for event in report.events)
    assert events.of(report) == []
