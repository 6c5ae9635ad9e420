"""Replies of a form behind captured steps: the same as by eager ones, each token one that its form allows."""

import ctypes
import json
import random
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from pagedchat.bench.random_checkpoint import byte_tokenizer
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.graphs.decode.ruled import RuledSteps
from pagedchat.runtime.structured.grammar import Grammar
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.structured.params import StructuredOutputsParams
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import BLOCK_SIZE, MODEL_LEN, VOCAB_SIZE, make_runner, tiny_model

STEP = 7


class Steps:
    """A matcher as llguidance's: divided by `STEP`, a reply's token `n` leaves what `n` leaves."""

    def __init__(self) -> None:
        self._length, self._failed = 0, False

    def deep_copy(self) -> "Steps":
        return copy(self)

    def consume_token(self, token: int) -> bool:
        self._failed |= token % STEP != self._length % STEP
        self._length += 1
        return not self._failed

    def consume_tokens(self, tokens: list[int]) -> bool:
        results = [self.consume_token(token) for token in tokens]
        return all(results)

    def rollback(self, num_tokens: int) -> bool:
        self._length -= num_tokens
        return not self._failed

    def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
        allowed = np.arange(8 * size) % STEP == self._length % STEP
        ctypes.memmove(address, np.packbits(allowed, bitorder="little").tobytes(), size)

    def is_error(self) -> bool:
        return self._failed

    def get_error(self) -> str:
        return "a token that is not allowed" * self._failed


class OneForm:
    def __init__(self) -> None:
        self.grammar = Grammar(Steps(), VOCAB_SIZE)

    def compile(self, wanted: StructuredOutputsParams) -> object:
        return self.grammar


FORM = StructuredOutputsParams(regex="any")
ANY_LENGTH = StructuredOutputsParams(json={"type": "array", "items": {"enum": [10, 200, "ab", True, "a b"]}})
KINDS: list[dict[str, Any]] = [
    {"temperature": 0, "structured_outputs": FORM},
    {"temperature": 0},
    {"temperature": 0.9, "seed": 4, "presence_penalty": 1.0, "structured_outputs": FORM, "logprobs": 2},
    {"temperature": 0.7, "seed": 6, "repetition_penalty": 1.3},
    {"temperature": 1.2, "top_k": 30, "seed": 5, "structured_outputs": FORM, "logit_bias": {3: 5.0}},
]


def limits() -> EngineLimits:
    return EngineLimits(
        num_blocks=100, block_size=BLOCK_SIZE, model_len=MODEL_LEN, max_num_seqs=8, max_num_batched_tokens=64,
        vocab_size=VOCAB_SIZE,
    )  # fmt: skip


def generated(runner: Any) -> list[Sequence]:
    """Chats that come one after the other; one of them is forked in the midst of its reply."""
    core = EngineCore(limits(), runner, grammars=OneForm())
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


def test_tokens_are_chosen_as_soon_as_those_before_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first one: before the engine has taken in what the step has brought."""
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 100, captured=True, max_num_tokens=64)
    late, ahead = [], []
    queue = RuledSteps.queue
    monkeypatch.setattr(
        RuledSteps, "queue", lambda *arguments: late.append(len(sequence.token_ids)) or queue(*arguments)
    )
    core = EngineCore(replace(limits(), reserve_ahead=True), runner, grammars=OneForm())
    seq_id = core.open()
    core.extend(seq_id, [1, 2, 3], SamplingParams(temperature=0, max_tokens=20, structured_outputs=FORM))
    sequence = core.sequences[seq_id]
    execute = runner.execute

    def executed(batch: Any) -> Any:
        output = execute(batch)
        if runner.decodes._ahead is not None:
            ahead.append((len(sequence.token_ids), runner.decodes._ahead.waits))
        return output

    monkeypatch.setattr(runner, "execute", executed)
    while core.has_work:
        core.step()
    assert late == [4]  # behind the prompt's token
    assert ahead == [(length, False) for length in range(4, 22)]


@pytest.mark.parametrize("device", DEVICES)
def test_bad_words_of_one_chat_wait_for_the_engine_and_forms_of_others_with_them(device: str) -> None:
    model = tiny_model("opt", device, torch.float32)
    words = [[a, b] for a in range(0, VOCAB_SIZE, 15) for b in range(0, 300, 15)]
    found = []
    for captured in (False, True):
        runner = make_runner(model, 100, captured=captured, max_num_tokens=64 if captured else 0)
        core = EngineCore(limits(), runner, grammars=OneForm())
        for kind in ({"bad_words_ids": words}, {"structured_outputs": FORM}):
            params = SamplingParams(temperature=0, max_tokens=24, **kind)
            core.extend(core.open(), [5, 9, 17], params)
        while core.has_work:
            core.step()
        found.append([seq.output_token_ids for seq in core.sequences.values()])
    assert found[0] == found[1]
    ruled, formed = found[1]
    assert not any([*pair] in words for pair in pairwise(ruled))
    assert [token % STEP for token in formed] == [i % STEP for i in range(24)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_replies_of_a_schema_are_those_of_eager_steps_whatever_happens_to_them(mode: str, device: str) -> None:
    """Several answers, forks, rewinds, chats that are stopped and that end in the midst, blocks that run out."""
    pytest.importorskip("llguidance")
    model, texts = tiny_model("llama", device, torch.float32), []
    tokenizer = byte_tokenizer()
    for captured in (False, True):
        runner = make_runner(model, 14, captured=captured, num_host_blocks=40, max_num_tokens=64 if captured else 0)
        core = EngineCore(
            replace(limits(), num_blocks=14, num_host_blocks=40, preemption_mode=mode, reserve_ahead=captured),
            runner, grammars=Grammars(tokenizer, VOCAB_SIZE, [0]),
        )  # fmt: skip
        texts.append(list(lived(core, tokenizer)))
        assert core.scheduler.num_preemptions > 0
        core.check_integrity()
    assert texts[0] == texts[1]
    assert runner.decodes.num_ahead > 30
    for ended, text in texts[1]:
        if ended:
            assert set(json.loads(text)) <= {10, 200, "ab", True, "a b"}
    assert sum(ended for ended, _ in texts[1]) > 5


def lived(core: EngineCore, tokenizer: Tokenizer) -> Iterator[tuple[bool, str]]:
    """What chats have written, and whether they came to an end."""
    draw = random.Random(8)
    params = [
        SamplingParams(
            temperature=0.9, seed=i, max_tokens=60, stop_token_ids=[0], n=1 + (i == 2), structured_outputs=form,
            presence_penalty=0.4 * (i % 3), logit_bias={40: 1.0} if i == 3 else None,
        )
        for i, form in enumerate([ANY_LENGTH, None, ANY_LENGTH, ANY_LENGTH, ANY_LENGTH, None, ANY_LENGTH])
    ]  # fmt: skip
    chats = []
    for each in params:
        chats.append(core.open())
        core.extend(chats[-1], draw.choices(range(1, 90), k=draw.randrange(3, 30)), each)
        for _ in range(3):
            core.step()
    core.fork(chats[3])
    for _ in range(6):
        core.step()
    seq = core.sequences[chats[0]]  # stopped in the midst of its reply, which goes on from an earlier token
    core.rewind(seq.seq_id, seq.num_prompt_tokens + len(seq.output_token_ids) // 2)
    core.extend(seq.seq_id, [], params[0], num_begun=len(seq.token_ids) - seq.num_prompt_tokens)
    core.close(chats[5])
    while core.has_work:
        core.step()
    for seq in core.sequences.values():
        if seq.sampling_params.structured_outputs is not None:
            yield seq.finish_reason == "stop", tokenizer.decode([token for token in seq.output_token_ids if token])
