"""Where the rows of packed and interleaved products go."""

import torch

from pagedchat.layers.attention import Heads
from pagedchat.models.checkpoint_layout import CheckpointLayout

HEADS = Heads(num_heads=4, num_kv_heads=2, head_dim=6)


def test_most_checkpoints_have_rows_as_they_are() -> None:
    assert CheckpointLayout().orders(HEADS, 6) == {}
    assert CheckpointLayout(qkv=("qkv",)).orders(HEADS, 6) == {}


def test_groups_are_taken_apart() -> None:
    orders = CheckpointLayout(qkv=("mixed",), by_group=True).orders(HEADS, 6)
    assert orders.keys() == {"mixed.weight", "mixed.bias"}
    kinds = ["q0", "q1", "k0", "v0", "q2", "q3", "k1", "v1"]
    rows = [f"{kind}.{i}" for kind in kinds for i in range(6)]
    expected = [f"{kind}.{i}" for kind in ["q0", "q1", "q2", "q3", "k0", "k1", "v0", "v1"] for i in range(6)]
    assert [rows[row] for row in orders["mixed.weight"]] == expected


def test_pairs_side_by_side_are_brought_apart() -> None:
    layout = CheckpointLayout(qkv=("q", "k", "v"), q_norm="q_norm", k_norm="k_norm", interleaved=True)
    orders = layout.orders(HEADS, 4)
    head = torch.tensor([0, 2, 1, 3, 4, 5])
    assert orders.keys() == {
        f"{name}.{part}" for name in ("q", "k", "q_norm", "k_norm") for part in ("weight", "bias")
    }
    assert torch.equal(orders["q.weight"], torch.cat([head + 6 * i for i in range(4)]))
    assert torch.equal(orders["k_norm.weight"], torch.cat([head, head + 6]))


def test_packed_and_side_by_side() -> None:
    orders = CheckpointLayout(qkv=("qkv",), interleaved=True).orders(HEADS, 6)
    head = torch.tensor([0, 2, 4, 1, 3, 5])
    turned = [head + 6 * i for i in range(6)]
    assert torch.equal(orders["qkv.weight"], torch.cat([*turned, torch.arange(36, 48)]))
