"""The tree of prefixes that can be found."""

import random

import pytest

from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.sharing.prefix_tree import PrefixNode, prefix_tree
from tests.scripted_reports import ScriptedEngine, random_workload


def mirror_of(engine: ScriptedEngine) -> CacheMirror:
    assert engine.view.mirror is not None
    return engine.view.mirror


def small(**limits: object) -> ScriptedEngine:
    settings: dict[str, object] = {"num_blocks": 40, "block_size": 4, "max_num_batched_tokens": 64, **limits}
    return ScriptedEngine(**settings)


def shape(node: PrefixNode) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return node.depth, node.blocks, node.owners


def test_a_node_is_a_run_of_blocks_with_the_same_owners() -> None:
    engine = small()
    system = list(range(12))
    engine.ask(1, [*system, *range(50, 59)], max_tokens=1)
    engine.run(2)
    engine.ask(2, [*system, *range(70, 79)], max_tokens=1)
    engine.run(2)
    engine.ask(3, [90] * 8, max_tokens=1)
    engine.run(2)
    mirror = mirror_of(engine)
    assert [shape(node) for node in prefix_tree(mirror).nodes] == [
        (0, (0, 1, 2), (1, 2)),
        (1, (3, 4), (1,)),
        (1, (6, 7), (2,)),
        (0, (9, 10), (3,)),
    ]
    engine.core.close(1)
    engine.flush()
    tree = prefix_tree(mirror)
    assert [shape(node) for node in tree.nodes] == [
        (0, (0, 1, 2), (2,)),
        (1, (6, 7), (2,)),
        (1, (3, 4), ()),
        (0, (9, 10), (3,)),
    ]
    assert all(node.is_reachable for node in tree.nodes)


@pytest.mark.parametrize("seed", range(4))
def test_every_findable_block_is_in_one_node_under_its_parent(seed: int) -> None:
    engine = ScriptedEngine(num_blocks=24, block_size=4, max_num_batched_tokens=12)
    for _ in random_workload(engine, random.Random(seed), 120):
        mirror = mirror_of(engine)
        tree = prefix_tree(mirror)
        shown = [block_id for node in tree.nodes for block_id in node.blocks]
        findable = [block for block, block_hash in enumerate(mirror.block_hashes) if block_hash is not None]
        assert sorted(shown) == findable
        assert tree.num_left_out == 0
        for node in tree.nodes:
            assert all(tuple(sorted(mirror.holders[block])) == node.owners for block in node.blocks)
            for before, after in zip(node.blocks, node.blocks[1:], strict=False):
                assert mirror.block_parents[after] == mirror.block_hashes[before]


def test_what_has_lost_its_parent_is_shown_apart() -> None:
    engine = small()
    engine.ask(1, list(range(13)), max_tokens=1)
    engine.run(2)
    mirror = mirror_of(engine)
    first = mirror.sequences[1].block_table[0]
    mirror.block_hashes[first] = None
    nodes = prefix_tree(mirror).nodes
    assert [node.is_reachable for node in nodes] == [False]
    assert nodes[0].blocks == tuple(mirror.sequences[1].block_table[1:3])


def test_a_large_tree_is_cut_and_says_by_how_much() -> None:
    engine = ScriptedEngine(num_blocks=256, block_size=4, max_num_batched_tokens=512)
    for seq_id in range(1, 9):
        engine.ask(seq_id, 20, max_tokens=1)
    engine.run(3)
    whole = prefix_tree(mirror_of(engine))
    cut = prefix_tree(mirror_of(engine), max_nodes=3)
    assert len(whole.nodes) == 8
    assert cut.nodes == whole.nodes[:3]
    assert cut.num_left_out == sum(len(node.blocks) for node in whole.nodes[3:])
