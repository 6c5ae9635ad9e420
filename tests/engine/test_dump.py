"""All that is known of a cache, as plain data: of blocks in every state, and sequences on the device and off it."""

import json

from pagedchat.engine.block_hashes import ROOT, hash_block
from pagedchat.engine.dump import dump_of
from tests.engine.test_core import ask, ask_and_finish, finish, make_engine, tokens


def test_a_dump_has_the_books_as_they_are() -> None:
    engine = make_engine(num_blocks=6, num_host_blocks=3, preemption_mode="swap")
    swapped = ask_and_finish(engine, tokens(5))
    engine.controls.set_limit(1)  # it goes to host memory; its full block stays
    engine.controls.set_limit(5)
    [kept] = engine.blocks.cache.block_ids
    engine.controls.pin(kept)
    here = ask(engine, [3, 3], max_tokens=2)
    report = engine.step()
    name = hash_block(ROOT, tokens(4)).hex()
    block = engine.sequences[here].block_table[0]
    dump = json.loads(json.dumps(dump_of(engine, "they disagree", report)))
    assert (dump["message"], dump["report"][1], dump["limits"]["num_blocks"]) == ("they disagree", 1 + 1, 6)
    assert dump["pool"] == {
        "ref_counts": [int(block_id == block) for block_id in range(6)],
        "free_blocks": engine.blocks.pool.free_blocks,
        "cached_blocks": [],
        "withheld": engine.blocks.pool.withheld,
        "pinned": [kept],
    }
    assert dump["host_ref_counts"] == [1, 1, 0]
    assert dump["findable"] == [{"block_id": kept, "hash": name, "parent": "", "token_ids": tokens(4)}]
    assert dump["sequences"] == [
        {
            "seq_id": swapped, "status": "parked", "num_tokens": 6, "num_computed": 5, "writable_len": 0,
            "block_table": [], "host_block_table": [0, 1], "hashes": [name],
        },
        {
            "seq_id": here, "status": "running", "num_tokens": 3, "num_computed": 2, "writable_len": 4,
            "block_table": [block], "host_block_table": [], "hashes": [],
        },
    ]  # fmt: skip


def test_a_dump_of_a_step_that_broke_off_has_no_report_and_a_cached_block_stands_among_its_kind() -> None:
    engine = make_engine(num_blocks=4)
    engine.close(ask_and_finish(engine, tokens(4)))
    finish(engine)
    dump = dump_of(engine, "", None)
    assert dump["report"] is None
    assert dump["pool"]["cached_blocks"] == [0]
