"""Tokens under rules, chosen behind captured steps: the same as by eager ones, begun ahead where that may be."""

from typing import Any

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import VOCAB_SIZE, make_engine, make_runner, tiny_model
from tests.runtime.graphs.decode.test_told import check_same, generated

EVEN = list(range(0, VOCAB_SIZE, 2))
BIASED = {token: -100.0 + token / 10 for token in EVEN}
KINDS: list[dict[str, Any]] = [
    {"temperature": 0, "logit_bias": BIASED, "logprobs": 2},
    {"temperature": 0},
    {"temperature": 0.9, "seed": 4, "presence_penalty": 1.0, "allowed_token_ids": EVEN},
    {"temperature": 1.2, "top_p": 0.8, "seed": 5, "min_tokens": 9, "stop_token_ids": list(range(60, 200))},
    {"temperature": 0.7, "seed": 6, "repetition_penalty": 1.3},
    {"temperature": 0, "repetition_penalty": 1.1, "bad_words_ids": [[token] for token in range(100)]},
]
FOLLOWING: list[dict[str, Any]] = [
    {"temperature": 0, "bad_words_ids": [[a, b] for a in range(0, VOCAB_SIZE, 15) for b in range(0, 300, 15)]},
    {"temperature": 0, "logprobs": 1},
]
LENGTHS = [16, 9, 14, 18, 6, 20, 3, 11, 8]


@pytest.mark.parametrize(
    ("family", "kinds", "device"),
    [
        ("opt", KINDS, "cpu"),
        ("llama", FOLLOWING, "cpu"),
        *(
            pytest.param(family, kinds, "cuda", marks=pytest.mark.gpu)
            for family, kinds in (("opt", KINDS), ("llama", KINDS), ("opt", FOLLOWING))
        ),
    ],
)
def test_chats_under_rules_get_the_same_tokens(family: str, kinds: list[dict[str, Any]], device: str) -> None:
    model, results = tiny_model(family, device, torch.float32), []
    for captured in (False, True):
        runner = make_runner(model, 100, captured=captured, max_num_tokens=64 if captured else 0)
        results.append(generated(runner, kinds, LENGTHS))
    for (tokens, told, _), (other_tokens, other_told, _) in zip(*results, strict=True):
        assert tokens == other_tokens
        check_same(told, other_told)
    if kinds is KINDS:
        assert runner.decodes.num_ahead > 10
        # What is told of a token is what the model alone says: here that its bias alone has made it likely.
        assert any(each.rank > 1 for _, told, _ in results[1] for each in told)


@pytest.mark.parametrize("device", DEVICES)
def test_steps_under_rules_are_begun_ahead_though_the_host_has_to_look_at_the_tokens(device: str) -> None:
    model = tiny_model("opt", device, torch.float32)
    for rules, num_ahead in (({"logit_bias": {3: 1.0}}, 18), ({"bad_words_ids": [[3, 4]]}, 18)):
        runner = make_runner(model, 100, captured=True, max_num_tokens=64)
        generated(runner, [{"temperature": 0, **rules}], [20])
        assert (runner.decodes.num_replays, runner.decodes.num_ahead) == (19, num_ahead)


def generate(core: EngineCore, **arguments: Any) -> list[int]:
    seq_id = core.open()
    varied = {"temperature": 0, "repetition_penalty": 3.0, "max_tokens": 12}  # alone it repeats one token
    core.extend(seq_id, [5, 9, 17], SamplingParams(**{**varied, **arguments}))
    while core.has_work:
        core.step()
    return core.sequences[seq_id].output_token_ids


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("captured", [False, True])
def test_each_rule_does_what_it_says(captured: bool, device: str) -> None:
    runner = make_runner(tiny_model("opt", device, torch.float32), 100, captured=captured, max_num_tokens=64)
    core = make_engine(runner)
    plain = generate(core)
    assert len(set(plain)) > 3
    assert set(generate(core, allowed_token_ids=EVEN)) <= set(EVEN)
    assert generate(core, logit_bias={7: 100.0}, repetition_penalty=1.0) == [7] * 12
    assert generate(core, logit_bias={plain[0]: -100.0})[0] != plain[0]
    assert plain[3] not in generate(core, bad_words_ids=[[plain[3]]])
    changed = generate(core, bad_words_ids=[plain[2:5]])
    assert changed[:4] == plain[:4]
    assert changed[4] != plain[4]
    stop = plain[2]
    assert generate(core, stop_token_ids=[stop])[-1] == stop
    later = generate(core, stop_token_ids=[stop], min_tokens=8)
    assert len(later) >= 8
    assert stop not in later[:8]
