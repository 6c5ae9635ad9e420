"""Every family of our decoder through every chain of launches, decodes and prompts: what its modules do, in float32
the same, in 16 bits no further off.
"""

from dataclasses import replace

import pytest
import torch

from pagedchat.models.decoder import Decoder
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.graphs import which_step
from pagedchat.runtime.graphs.which_step import FUSED, LIBRARY, WARPGROUPS
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import described_model
from tests.runtime.graphs.decode.test_decode_steps import assert_chain_is_right
from tests.runtime.graphs.families import KINDS, family_model
from tests.runtime.graphs.rounding import assert_decodes_round_no_worse, prompt_logits

CHAINS = [
    (name, kind)
    for name in (FUSED, WARPGROUPS, LIBRARY)
    for kind in KINDS
    if name == LIBRARY or kind != "llama_biases"  # its gates have biases
]
LENGTHS = {FUSED: [5, 16, 90], WARPGROUPS: [5, 16, 90, *range(20, 30)], LIBRARY: [5, 16, 90, 40]}
"""Of sequences that decode."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "kind"), CHAINS)
def test_decodes_are_those_of_the_modules(
    name: str, kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_chain_is_right(name, family_model(kind, device, torch.float32), monkeypatch)


ALL_ROWS, ITS_LAST_ROWS = 1 << 20, 0
"""What the last layer of a pass goes on with: tokens up to which that is all rows."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("all_up_to", [ALL_ROWS, ITS_LAST_ROWS])
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_those_of_the_modules(
    kind: str, all_up_to: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(which_step, "MANY_TOKENS", all_up_to)
    model = family_model(kind, device, torch.float32)
    plain, merged = prompt_logits(model, captured=False), prompt_logits(model, captured=True)
    torch.testing.assert_close(merged, plain, rtol=1e-4, atol=1e-3)


# --- in 16 bits -----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "kind"), CHAINS)
def test_decodes_round_no_worse(name: str, kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes the tokens of float32."""
    rule = next(rule for rule in which_step.DECODES if rule.name == name)
    monkeypatch.setattr(which_step, "DECODES", (replace(rule, wants=()),))
    model = family_model(kind, "cuda", dtype)
    assert_decodes_round_no_worse(_in_float32(model), model, model, LENGTHS[name])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("all_up_to", [ALL_ROWS, ITS_LAST_ROWS])
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_round_no_worse(
    kind: str, all_up_to: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(which_step, "MANY_TOKENS", all_up_to)
    model = family_model(kind, "cuda", dtype)
    wanted = prompt_logits(_in_float32(model), captured=False)
    plain, merged = prompt_logits(model, captured=False), prompt_logits(model, captured=True)
    assert 0 < (merged - wanted).norm() <= 1.5 * (plain - wanted).norm()


def _in_float32(model: NativeModel) -> NativeModel:
    """The same weights."""
    assert isinstance(model, Decoder)
    other = described_model(model.config, "cuda", torch.float32)
    for mine, its in zip(other.parameters(), model.parameters(), strict=True):
        mine.data.copy_(its)
    return other
