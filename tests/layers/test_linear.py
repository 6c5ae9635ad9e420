import torch

from pagedchat.layers.linear import Linear
from pagedchat.layers.weights import Places


def fill(places: Places) -> dict[str, torch.Tensor]:
    """Puts random values into all places; returns copies of them."""
    torch.manual_seed(0)
    for place in places.values():
        place.normal_()
    return {name: place.clone() for name, place in places.items()}


def test_parts_are_products_of_their_own_side_by_side() -> None:
    fused = Linear(6, 9, bias=True)
    given = fill(fused.part_places({"q": 4, "k": 2, "v": 3}))
    rows = torch.randn(5, 6)
    expected = [rows @ given[f"{part}.weight"].T + given[f"{part}.bias"] for part in "qkv"]
    torch.testing.assert_close(fused(rows), torch.cat(expected, dim=1))


def test_every_element_has_one_place() -> None:
    fused = Linear(6, 9, bias=True)
    places = fused.part_places({"q": 4, "k": 2, "v": 3})
    for place in places.values():
        place.zero_()
    for place in places.values():
        place.add_(1)
    assert torch.equal(fused.weight, torch.ones(9, 6))
    assert fused.bias is not None
    assert torch.equal(fused.bias, torch.ones(9))


def test_no_bias_has_no_place() -> None:
    assert list(Linear(6, 9, bias=False).places("out")) == ["out.weight"]


def test_shared_weight_is_the_same_tensor() -> None:
    owner = Linear(6, 9, bias=False)
    assert Linear(6, 9, bias=False, weight=owner.weight).weight is owner.weight
