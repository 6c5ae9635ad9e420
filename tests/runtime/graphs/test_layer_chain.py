"""Layers whose products add to a residual stream and norm its rows, beside the same layers by torch."""

import pytest
import torch

from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors
from pagedchat.runtime.graphs.layer_chain import WarpgroupProducts, through_layers
from pagedchat.runtime.graphs.model_tensors import tensors_of
from tests.ops.products.small_batch_case import allowed, error
from tests.runtime.graphs.case import MODEL_LEN, tiny_model
from tests.tools.emulated_ops.clusters import cut_by
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu


def attend(layer: LayerTensors, heads: torch.Tensor) -> torch.Tensor:
    """In place of attention: the queries."""
    return heads[:, : layer.sizes.num_heads * layer.sizes.head_dim].contiguous()


def through(model: ModelTensors, rows: torch.Tensor) -> torch.Tensor:
    return through_layers(model, rows.clone(), WarpgroupProducts(), attend).rows


@needs_compiler
@pytest.mark.parametrize("family", ["llama", "phi"])
def test_rows_are_normed_in_the_products_that_read_them(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tensors_of(tiny_model(family, "cpu", torch.float16), MODEL_LEN)
    assert model is not None
    rows = torch.randn(20, 256, generator=torch.Generator().manual_seed(1)).half()
    expected = through(model, rows)
    norms: list[Norm | None] = []

    def noted(hidden: torch.Tensor, update: None, norm: Norm | None, *, overlap: bool) -> torch.Tensor:
        norms.append(norm)
        return add_norm(hidden, update, norm, overlap=overlap)

    for module in ("ops.products.warpgroup_linear", "runtime.graphs.layer_chain"):
        monkeypatch.setattr(f"pagedchat.{module}.add_norm", noted)

    with kernels_on_cpu(seed=2) as emulated, cut_by(ClusterPlan(32, 2, 2, 1, 3, 2)):
        found = through(model, rows)

    assert "cluster_linear" in emulated.launched
    assert error(found, expected.double()) < 4 * allowed(torch.float16)
    assert (
        len(norms) == {"llama": 1, "phi": 2}[family]
    )  # that of the embedded tokens; one for both halves of a layer
