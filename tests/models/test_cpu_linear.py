import pytest
import torch
from torch import nn

from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear
from pagedchat.models import cpu_linear
from pagedchat.models.cpu_linear import CpuLinear, KernelLinear, has_packed_linear, use_cpu_linears
from pagedchat.ops.cpu.kernels import cpu_kernels

pytestmark = pytest.mark.skipif(not has_packed_linear(), reason="this build of torch has no oneDNN")

GIB = 1024**3


@pytest.fixture(autouse=True, params=["kernels", "torch"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[nn.Module]:
    """What takes the place of layers: with kernels of our own and without."""
    if request.param == "torch":
        monkeypatch.setattr(cpu_linear, "cpu_kernels", lambda: None)
        return CpuLinear
    if cpu_kernels() is None:
        pytest.skip("no CPU kernels")
    return KernelLinear


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
def test_any_number_of_rows_gives_the_product_of_the_plain_layer(shape, bias, width, kind):
    torch.manual_seed(0)
    linear, rows = nn.Linear(24, width, bias=bias), torch.randn(shape)
    expected = linear(rows.double().float())
    torch.testing.assert_close(replaced(linear, kind)(rows), expected)


@pytest.mark.parametrize("num_rows", [1, 5, 40])
@torch.inference_mode()
def test_16_bits_are_multiplied_too(num_rows, kind):
    linear = nn.Linear(24, 40).bfloat16()
    rows = torch.randn(num_rows, 24).bfloat16()
    if kind is CpuLinear and not torch.ops.mkldnn._is_mkldnn_bf16_supported():  # as of processors without AVX-512
        assert use_cpu_linears(nn.Sequential(linear), available=GIB) == 0
        return
    torch.testing.assert_close(replaced(linear, kind)(rows), linear(rows))


@torch.inference_mode()
def test_rows_that_are_not_contiguous(kind):
    linear, rows = nn.Linear(24, 40), torch.randn(24, 6).t()
    torch.testing.assert_close(replaced(linear, kind)(rows), linear(rows))


def replaced(linear: nn.Linear, kind: type[nn.Module]) -> nn.Module:
    parent = nn.Sequential(linear)
    assert use_cpu_linears(parent, available=GIB) == 1
    assert type(parent[0]) is kind
    return parent[0]


@torch.inference_mode()
def test_a_shared_head_is_replaced_and_the_embedding_left_as_it_is(kind):
    model, tokens = Tied(), torch.tensor([[3, 4, 5]])
    before = model.embedding.weight.clone()
    expected = model.head(model.inner(model.embedding(tokens)))
    assert use_cpu_linears(model, available=GIB) == 3
    assert isinstance(model.head, kind)
    torch.testing.assert_close(model.head(model.inner(model.embedding(tokens))), expected)
    assert model.embedding.weight.is_contiguous()
    torch.testing.assert_close(model.embedding.weight, before)


def test_layers_stay_as_they_are_where_memory_is_short(kind):
    model = Tied()
    one_inner_layer = 24 * 40 * 4
    num_replaced = use_cpu_linears(model, available=one_inner_layer * 8)
    if kind is KernelLinear:  # which needs no copy, but for long prompts
        assert num_replaced == 3
        assert [layer._packed is not None for layer in (model.inner[0], model.inner[2], model.head)] == [
            True, False, False
        ]  # fmt: skip
    else:
        assert num_replaced == 1
        assert type(model.head) is nn.Linear


@torch.inference_mode()
def test_layers_of_our_own_are_replaced_too(kind):
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
    assert isinstance(model["head"], kind)
    torch.testing.assert_close([model[name](rows) for name in ("qkv", "head")], expected)
    assert model["embedding"].weight is embedding.weight
    assert embedding.weight.is_contiguous()
