"""Chats under one system prompt decode as a group, and nobody can tell from the replies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagedchat import LLM, SamplingParams
from pagedchat.runtime.attention import cuda_backend
from pagedchat.runtime.graphs.decode import attention as decode_attention
from tests.backends import Setup, kernels_on_cpu
from tests.helpers_models import make_checkpoint

SYSTEM = [(13 * i) % 90 + 3 for i in range(50)]
OTHER_SYSTEM = [(17 * i) % 90 + 3 for i in range(40)]
PROMPTS = [
    *[[*SYSTEM, 5 + i, *range(20, 20 + 3 * i)] for i in range(5)],
    *[[*OTHER_SYSTEM, 50 + i] for i in range(3)],
    [7, 8, 9],
]
GREEDY = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
SETUPS = [
    pytest.param(Setup("opt_64", "cpu", "cuda"), id="opt_64-cpu"),
    *(
        pytest.param(Setup(family, "cuda", "cuda"), id=f"{family}-cuda", marks=pytest.mark.gpu)
        for family in ("opt_64", "llama_64", "mistral_64", "gemma2_256")
    ),
]
NEAR_TIE = 0.1
FULL_ATTENTION = ("opt_64", "llama_64", "gemma2_256")
"""Every other layer of Gemma 2 looks at everything; Mistral has windows alone, and nothing to share."""


@pytest.mark.parametrize("setup", SETUPS)
def test_replies_are_the_same_with_and_without_sharing(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint(tmp_path, setup.family)
    groups: list[int] = []
    # Steps of our own models are captured on a GPU, those of others run through the backend.
    for module, name in ((cuda_backend, "decode_shared"), (decode_attention, "launch_shared")):
        monkeypatch.setattr(module, name, noting_groups(getattr(module, name), groups))
    apart = replies(checkpoint, setup)
    assert not groups, "so few tokens are not worth it"
    monkeypatch.setattr(cuda_backend, "MIN_SHARED_TOKENS", 1)
    monkeypatch.setattr(cuda_backend, "MIN_SAVED_BYTES", 1)
    assert_same(checkpoint, apart, replies(checkpoint, setup))
    assert (max(groups, default=0) > 1) == (setup.family in FULL_ATTENTION)


def noting_groups(attend: Callable[..., object], groups: list[int]) -> Callable[..., object]:
    """The same function, which notes how many groups of sequences it is given."""

    def spy(*args: Any, **settings: Any) -> object:
        groups.append(len(args[2]) - 1)  # where the groups start, behind the call and the shared lengths
        return attend(*args, **settings)

    return spy


def replies(checkpoint: Path, setup: Setup) -> list[list[int]]:
    with kernels_on_cpu():
        llm = LLM(
            str(checkpoint),
            dtype="float16",
            skip_tokenizer_init=True,
            block_size=8,
            num_blocks=200,
            **setup.arguments,
        )
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    llm.generate(prompts, GREEDY, use_tqdm=False)
    llm.prepare()  # by now it is known what has to be captured
    return [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY, use_tqdm=False)]


def assert_same(checkpoint: Path, one: list[list[int]], other: list[list[int]]) -> None:
    """The same replies, but where two tokens are almost equally likely in float32: 16 bits may choose either."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    for prompt, ours, theirs in zip(PROMPTS, one, other, strict=True):
        if ours != theirs:
            place = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *ours[:place]]])).logits[0, -1]
            gap = (logits[ours[place]] - logits[theirs[place]]).abs()
            assert gap < NEAR_TIE * logits.std()
