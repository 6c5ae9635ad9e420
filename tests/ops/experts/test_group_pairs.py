import pytest
import torch

from pagedchat.ops.experts.expert_plan import ExpertPlan
from pagedchat.ops.experts.group_pairs import group_pairs
from tests.ops.paged_case import DEVICES


def some_experts(num_tokens: int, per_token: int, num_experts: int, device: str) -> torch.Tensor:
    """None twice for a token; the first ones more often."""
    generator = torch.Generator().manual_seed(num_tokens)
    likely = 1.0 / (1 + torch.arange(num_experts)).float()
    drawn = [torch.multinomial(likely, per_token, generator=generator) for _ in range(num_tokens)]
    return torch.stack(drawn).int().to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tile_rows", [8, 64])
@pytest.mark.parametrize(
    ("num_tokens", "per_token", "num_experts"), [(1, 1, 1), (1, 8, 128), (9, 2, 8), (70, 4, 60), (400, 3, 1024)]
)
def test_tiles_have_each_pair_once_and_one_expert(
    num_tokens: int, per_token: int, num_experts: int, tile_rows: int, device: str
) -> None:
    experts = some_experts(num_tokens, per_token, num_experts, device)
    groups = group_pairs(experts, num_experts, ExpertPlan("registers", tile_rows))
    flat, order = experts.flatten().tolist(), groups.order.tolist()
    assert order == sorted(range(len(flat)), key=lambda pair: (flat[pair], pair))
    tiles = groups.tiles.tolist()
    live = [tile for tile in tiles if tile[2]]
    assert tiles == [*live, *[[0, 0, 0, 0]] * (len(tiles) - len(live))]
    ends = 0
    for expert, first, count, _ in live:
        assert first == ends
        assert 1 <= count <= tile_rows
        assert {flat[pair] for pair in order[first : first + count]} == {expert}
        ends += count
    assert ends == len(flat)
    per_expert = {expert: flat.count(expert) for expert in flat}
    assert len(live) == sum(-(-count // tile_rows) for count in per_expert.values())


def test_wrong_arguments_are_named() -> None:
    plan = ExpertPlan("torch", 8)
    with pytest.raises(ValueError, match=r"experts is torch\.int64, expected torch\.int32"):
        group_pairs(torch.zeros(2, 2, dtype=torch.int64), 4, plan)
    with pytest.raises(ValueError, match="2000 of them are more than 1024"):
        group_pairs(torch.zeros(2, 2, dtype=torch.int32), 2000, plan)
