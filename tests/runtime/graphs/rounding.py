"""Logits of prompts and of decodes, by the modules and by captured steps, beside those of float32."""

from typing import Any

import torch

from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.graphs.which_step import MERGED
from pagedchat.runtime.step.batch_inputs import flatten
from tests.runtime.graphs.case import BLOCK_SIZE, VOCAB_SIZE, batch_of, chunk, make_runner
from tests.runtime.graphs.decode.test_decode_steps import one_token_each, prefilled

PROMPTS = (2, 70, 16, 33, 100)


def assert_decodes_round_no_worse(
    exact_model: NativeModel, model: NativeModel, captured_model: NativeModel, lengths: list[int]
) -> None:
    """Captured steps than modules. Each step takes the tokens of the exact model.

    Args:
        exact_model: the same weights in float32.
        model: by the modules.
        captured_model: by captured steps.
        lengths: tokens of each prompt.
    """
    exact, plain, chain = (
        make_runner(of, 200, captured=captured)
        for of, captured in ((exact_model, False), (model, False), (captured_model, True))
    )
    sequences = [prefilled(runner, lengths) for runner in (exact, plain, chain)]
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


def _logits(runner: Any, parts: list[Any]) -> torch.Tensor:
    found: torch.Tensor = runner.forward(flatten(parts, BLOCK_SIZE, runner.device))
    return found.float()


def prompt_logits(model: NativeModel, *, captured: bool) -> torch.Tensor:
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
