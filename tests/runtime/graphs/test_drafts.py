"""Drafts over captured steps and over eager ones: the tokens of plain decoding, whatever comes and goes."""

import random
from itertools import product

import pytest
import torch

from pagedchat.config import SpeculationConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from tests.runtime.graphs.case import VOCAB_SIZE, make_engine, make_runner, tiny_model
from tests.runtime.graphs.decode.test_decode_steps import PENALISED

LOOKUP = SpeculationConfig(method="lookup", num_speculative_tokens=6, prompt_lookup_min=1)
DRAWN = [{}, *PENALISED, {"temperature": 0.4, "seed": 5, "top_k": 3}]


@pytest.mark.parametrize(
    ("family", "preemption_mode", "captured", "device"),
    [
        ("opt", "recompute", True, "cpu"),
        ("llama", "swap", True, "cpu"),
        ("qwen3", "swap", False, "cpu"),
        *(
            pytest.param(*case, "cuda", marks=pytest.mark.gpu)
            for case in product(("opt", "llama", "qwen3"), ("recompute", "swap"), (True, False))
        ),
    ],
)
def test_chats_get_the_same_tokens_with_drafts(
    family: str, preemption_mode: str, captured: bool, device: str
) -> None:
    """Greedy ones and drawn ones, forked, rewound and preempted, prompts in pieces beside them."""
    model = tiny_model(family, device, torch.float32)
    replies = []
    for speculation in (SpeculationConfig(), LOOKUP):
        runner = make_runner(model, 48, captured=captured, num_host_blocks=64, max_num_tokens=64, max_num_seqs=32)
        core = make_engine(
            runner, preemption_mode=preemption_mode, num_host_blocks=64, max_num_batched_tokens=64,
            speculation=speculation, most_draft_rows=32,
        )  # fmt: skip
        core.scheduler.drafts.worth = None
        replies.append(finished(core))
        core.check_integrity()
    assert replies[0] == replies[1]
    drafts = core.scheduler.drafts
    assert 0 < drafts.num_accepted < drafts.num_drafted
    assert core.scheduler.num_preemptions > 0


@pytest.mark.parametrize(
    ("family", "dtype", "device"),
    [
        ("opt", torch.float32, "cpu"),
        *(
            pytest.param(family, dtype, "cuda", marks=pytest.mark.gpu)
            for family, dtype in product(("opt", "llama", "qwen3"), (torch.float16, torch.float32))
        ),
    ],
)
def test_rows_read_what_rows_before_them_write(family: str, dtype: torch.dtype, device: str) -> None:
    """Drafts that are right are accepted whole, wherever among the tiles of a kernel they begin."""
    model = tiny_model(family, device, dtype)
    prompts = [[(7 * i + n) % 90 for i in range(n)] for n in (14, 29, 31, 32, 33, 63)]
    runner = make_runner(model, 96, captured=True, max_num_tokens=256, max_num_seqs=64)
    plain = make_engine(runner, max_num_batched_tokens=256)
    ids = [ask(plain, prompt) for prompt in prompts]
    while plain.has_work:
        plain.step()
    known = [plain.sequences[seq_id].token_ids for seq_id in ids]
    core = make_engine(runner, max_num_batched_tokens=256, speculation=LOOKUP, most_draft_rows=64)
    drafts = core.scheduler.drafts
    drafts.worth = None
    drafts._all_drafts = lambda running, _: [known[seq.seq_id - 1][len(seq) : -1][:7] for seq in running]
    ids = [ask(core, prompt) for prompt in prompts]
    while core.has_work:
        core.step()
    assert [core.sequences[seq_id].token_ids for seq_id in ids] == known
    assert 0 < drafts.num_accepted == drafts.num_drafted
    assert runner.decodes.num_replays + runner.decodes.verifies.num_replays >= 24 + 3
    assert runner.decodes.verifies.num_replays >= 3


def ask(core: EngineCore, prompt: list[int]) -> int:
    seq_id = core.open()
    core.extend(seq_id, prompt, SamplingParams(temperature=0, max_tokens=24, ignore_eos=True))
    return seq_id


def finished(core: EngineCore) -> list[list[int]]:
    """Tokens of all chats when each has had what it asked for. What is asked depends on no step before."""
    source, asked = random.Random(2), []
    for i, kind in enumerate(DRAWN * 2):
        start = source.choices(range(VOCAB_SIZE), k=source.choice([5, 16, 40]))
        params = SamplingParams(**{"temperature": 0, "seed": i, **kind}, max_tokens=40, ignore_eos=True)
        seq_id = core.open()
        core.extend(seq_id, start * (1 + i % 2), params)
        asked.append((seq_id, params))
        for _ in range(3):
            core.step()
        if i % 3 == 1:
            core.fork(seq_id, params=params)
        if i % 5 == 4:
            rewound, params = asked[i // 2]
            core.rewind(rewound, 5)
            core.extend(rewound, [7], params)
    for _ in range(2000):
        if not core.has_work:
            break
        core.step()
    return [sequence.token_ids for sequence in core.sequences.values()]
