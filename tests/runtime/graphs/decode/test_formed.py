"""Replies of a form behind captured steps: the same as by eager ones, each token one that its form allows."""

import ctypes
from copy import copy
from typing import Any

import numpy as np
import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.structured.params import StructuredOutputsParams
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import BLOCK_SIZE, MODEL_LEN, VOCAB_SIZE, make_runner, tiny_model

STEP = 7


class Steps:
    """A form as `Grammar` is one: divided by `STEP`, a reply's token `n` leaves what `n` leaves."""

    def follow(self, sequence: Sequence) -> "Steps":
        self._length = len(sequence.output_token_ids)
        return copy(self)

    def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
        allowed = np.arange(8 * size) % STEP == self._length % STEP
        ctypes.memmove(address, np.packbits(allowed, bitorder="little").tobytes(), size)

    def is_error(self) -> bool:
        return False


class OneForm:
    def compile(self, wanted: StructuredOutputsParams) -> object:
        return Steps()


FORM = StructuredOutputsParams(regex="any")
KINDS: list[dict[str, Any]] = [
    {"temperature": 0, "structured_outputs": FORM},
    {"temperature": 0},
    {"temperature": 0.9, "seed": 4, "presence_penalty": 1.0, "structured_outputs": FORM, "logprobs": 2},
    {"temperature": 0.7, "seed": 6, "repetition_penalty": 1.3},
    {"temperature": 1.2, "top_k": 30, "seed": 5, "structured_outputs": FORM, "logit_bias": {3: 5.0}},
]


def generated(runner: Any) -> list[Sequence]:
    """Chats that come one after the other; one of them is forked in the midst of its reply."""
    limits = EngineLimits(
        num_blocks=100, block_size=BLOCK_SIZE, model_len=MODEL_LEN, max_num_seqs=8, max_num_batched_tokens=64,
        vocab_size=VOCAB_SIZE,
    )  # fmt: skip
    core = EngineCore(limits, runner, grammars=OneForm())
    for i, length in enumerate([30, 12, 25, 33, 8, 40, 3, 20]):
        prompt = [(i * 37 + j) % VOCAB_SIZE for j in range(1 + 13 * i)]
        core.extend(core.open(), prompt, SamplingParams(**KINDS[i % len(KINDS)], max_tokens=length))
        core.step()
        if i == 4:
            core.fork(1)
    while core.has_work:
        core.step()
    core.check_integrity()
    return list(core.sequences.values())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["opt", "llama"])
def test_every_token_is_one_that_its_form_allows_and_the_eager_one(family: str, device: str) -> None:
    model, results = tiny_model(family, device, torch.float32), []
    for captured in (False, True):
        runner = make_runner(model, 100, captured=captured, max_num_tokens=64 if captured else 0)
        results.append(generated(runner))
    assert runner.decodes.num_replays > 30
    assert [seq.token_ids for seq in results[0]] == [seq.token_ids for seq in results[1]]
    formed = [seq for seq in results[1] if seq.sampling_params.structured_outputs is not None]
    assert len(formed) == 6
    for seq in formed:
        assert [token % STEP for token in seq.output_token_ids] == [
            i % STEP for i in range(len(seq.output_token_ids))
        ]
