"""Every family of our decoder through every chain of launches, decodes and prompts: what its modules do, in float32
the same, in 16 bits no further off.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pagedchat.models.decoder import Decoder
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.graphs import which_step
from pagedchat.runtime.graphs.which_step import FUSED, LIBRARY, MERGED, WARPGROUPS
from pagedchat.runtime.step.batch_inputs import flatten
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import (
    BLOCK_SIZE,
    VOCAB_SIZE,
    batch_of,
    chunk,
    described_model,
    make_runner,
)
from tests.runtime.graphs.decode.test_decode_steps import assert_chain_is_right, one_token_each, prefilled
from tests.runtime.graphs.families import KINDS, family_model

CHAINS = [
    (name, kind)
    for name in (FUSED, WARPGROUPS, LIBRARY)
    for kind in KINDS
    if name == LIBRARY or kind != "llama_biases"  # its gates have biases
]
LENGTHS = {FUSED: [5, 16, 90], WARPGROUPS: [5, 16, 90, *range(20, 30)], LIBRARY: [5, 16, 90, 40]}
"""Of sequences that decode."""
PROMPTS = (2, 70, 16, 33, 100)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "kind"), CHAINS)
def test_decodes_are_those_of_the_modules(
    name: str, kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_chain_is_right(name, family_model(kind, device, torch.float32), monkeypatch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_those_of_the_modules(kind: str, device: str) -> None:
    model = family_model(kind, device, torch.float32)
    plain, merged = _prompts(model, captured=False), _prompts(model, captured=True)
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
    exact, plain, chain = (
        make_runner(of, 200, captured=captured)
        for of, captured in ((_in_float32(model), False), (model, False), (model, True))
    )
    sequences = [prefilled(runner, LENGTHS[name]) for runner in (exact, plain, chain)]
    errors = torch.zeros(2)
    for _ in range(4):
        of_exact, of_plain, of_chain = (one_token_each(of_runner) for of_runner in sequences)
        wanted, ours = (_logits(*pair) for pair in ((exact, of_exact), (plain, of_plain)))
        begun = chain.decodes.begin(batch_of(*of_chain), goes_on=False)
        assert begun is not None
        chain.decodes.finish(begun)
        of_steps = chain.decodes.last_logits[: len(wanted)].float()
        errors += torch.stack([(found - wanted).square().sum().cpu() for found in (ours, of_steps)])
        for of_runner in sequences:
            for sequence, token in zip(of_runner, wanted.argmax(dim=-1).tolist(), strict=True):
                sequence.token_ids.append(token)
    assert 0 < errors[1].sqrt() <= 1.5 * errors[0].sqrt()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_round_no_worse(kind: str, dtype: torch.dtype) -> None:
    model = family_model(kind, "cuda", dtype)
    wanted = _prompts(_in_float32(model), captured=False)
    plain, merged = _prompts(model, captured=False), _prompts(model, captured=True)
    assert 0 < (merged - wanted).norm() <= 1.5 * (plain - wanted).norm()


def _in_float32(model: NativeModel) -> NativeModel:
    """The same weights."""
    assert isinstance(model, Decoder)
    other = described_model(model.config, "cuda", torch.float32)
    for mine, its in zip(other.parameters(), model.parameters(), strict=True):
        mine.data.copy_(its)
    return other


def _logits(runner: Any, parts: list[Any]) -> torch.Tensor:
    found: torch.Tensor = runner.forward(flatten(parts, BLOCK_SIZE, runner.device))
    return found.float()


def _prompts(model: NativeModel, *, captured: bool) -> torch.Tensor:
    """Logits behind each of `PROMPTS`, the second half of each in a chunk of its own."""
    runner = make_runner(model, 120, captured=captured, max_num_tokens=256 if captured else 0)
    texts, tables, block = [], [], 0
    for length in PROMPTS:
        texts.append([(7 * i + i * i * length) % VOCAB_SIZE for i in range(length)])
        tables.append(list(range(block, block + length // BLOCK_SIZE + 1)))
        block += len(tables[-1])
    halves = [len(text) // 2 for text in texts]
    logits = torch.empty(0)
    for starts, ends in (([0] * len(texts), halves), (halves, PROMPTS)):
        parts = [chunk(*part) for part in zip(texts, tables, starts, ends, strict=True)]
        if captured:
            begun = runner.prefills.begin(batch_of(*parts))
            assert begun is not None
            runner.prefills.finish(begun)
            logits = runner.prefills.logits[: len(parts)]
        else:
            logits = runner.forward(flatten(parts, BLOCK_SIZE, runner.device))
    if captured:
        assert runner.prefills.store.distrust() == MERGED  # by which they went
    return logits.float().clone()
