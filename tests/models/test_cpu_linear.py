import pytest
import torch
from torch import nn

from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear
from pagedchat.models.cpu_linear import CpuLinear, has_packed_linear, use_cpu_linears

pytestmark = pytest.mark.skipif(not has_packed_linear(), reason="this build of torch has no oneDNN")

GIB = 1024**3


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.inner = nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 24, bias=False))
        self.head = nn.Linear(24, 50, bias=False)
        self.head.weight = self.embedding.weight


@pytest.mark.parametrize("width", [40, 60])
@pytest.mark.parametrize("shape", [(1, 24), (1, 1, 24), (2, 24), (1, 7, 24), (300, 24)])
@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_any_number_of_rows_gives_the_product_of_the_plain_layer(shape, bias, width):
    torch.manual_seed(0)
    linear, rows = nn.Linear(24, width, bias=bias), torch.randn(shape)
    expected = linear(rows.double().float())
    torch.testing.assert_close(CpuLinear(linear)(rows), expected)


@torch.inference_mode()
def test_rows_that_are_not_contiguous():
    linear, rows = nn.Linear(24, 40), torch.randn(24, 6).t()
    torch.testing.assert_close(CpuLinear(linear)(rows), linear(rows))


@torch.inference_mode()
def test_a_shared_head_is_replaced_and_the_embedding_left_as_it_is():
    model, tokens = Tied(), torch.tensor([[3, 4, 5]])
    before = model.embedding.weight.clone()
    expected = model.head(model.inner(model.embedding(tokens)))
    assert use_cpu_linears(model, available=GIB) == 3
    assert isinstance(model.head, CpuLinear)
    torch.testing.assert_close(model.head(model.inner(model.embedding(tokens))), expected)
    assert model.embedding.weight.is_contiguous()
    torch.testing.assert_close(model.embedding.weight, before)


def test_layers_stay_as_they_are_where_memory_is_short():
    model = Tied()
    one_inner_layer = 24 * 40 * 4
    assert use_cpu_linears(model, available=one_inner_layer * 8) == 1
    assert type(model.head) is nn.Linear


@torch.inference_mode()
def test_layers_of_our_own_are_replaced_too():
    embedding = Embedding(50, 24)
    model = nn.ModuleDict(
        {
            "embedding": embedding,
            "qkv": Linear(24, 72, bias=True),
            "head": Linear(24, 50, bias=False, weight=embedding.weight),
        }
    )
    for parameter in model.parameters():
        parameter.normal_()
    rows = torch.randn(9, 24)
    expected = [model[name](rows) for name in ("qkv", "head")]
    assert use_cpu_linears(model, available=GIB) == 2
    assert isinstance(model["head"], CpuLinear)
    torch.testing.assert_close([model[name](rows) for name in ("qkv", "head")], expected)
    assert model["embedding"].weight is embedding.weight
    assert embedding.weight.is_contiguous()
