"""Rules of sampling against the logits processors of transformers, on random logits."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.step.rules import under_rules
from pagedchat.runtime.step.sampler import sample
from pagedchat.runtime.step.sampling_row import SamplingRow

VOCAB_SIZE, NUM_PROMPT, EOS = 24, 3, 2
TOKENS = st.integers(0, VOCAB_SIZE - 1)


@st.composite
def requests(draw: st.DrawFn) -> tuple[SamplingParams, list[int]]:
    """Rules in any company, and the tokens so far."""
    arguments: dict[str, Any] = {
        "logit_bias": draw(st.none() | st.dictionaries(TOKENS, st.floats(-100, 100, width=32), max_size=6)),
        "allowed_token_ids": draw(st.none() | st.lists(TOKENS, min_size=8, unique=True)),
        "bad_words_ids": draw(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=4)),
        "min_tokens": draw(st.integers(0, 6)),
    }
    token_ids = draw(st.lists(st.integers(0, 5), min_size=NUM_PROMPT, max_size=NUM_PROMPT + 6))
    return SamplingParams(**arguments), token_ids


def processors(params: SamplingParams) -> LogitsProcessorList:
    """Transformers' own, in vLLM's order."""
    each = LogitsProcessorList()
    allowed = params.allowed_token_ids
    if allowed is not None:
        each.append(PrefixConstrainedLogitsProcessor(lambda _batch, _ids: allowed, 1))
    if params.bad_words_ids:
        each.append(NoBadWordsLogitsProcessor(params.bad_words_ids, eos_token_id=None))
    each.append(MinNewTokensLengthLogitsProcessor(NUM_PROMPT, params.min_tokens, EOS, device="cpu"))
    if params.logit_bias:
        each.append(SequenceBiasLogitsProcessor({(token,): bias for token, bias in params.logit_bias.items()}))
    return each


def logits_from(seed: int, rows: int = 1) -> torch.Tensor:
    return 4 * torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=80, deadline=None)
@given(requests(), st.integers(0, 1 << 30))
def test_rules_are_those_of_transformers(request: tuple[SamplingParams, list[int]], seed: int) -> None:
    params, token_ids = request
    logits = logits_from(seed)
    row = SamplingRow(params, token_ids, 1, NUM_PROMPT, frozenset({EOS}))
    found = under_rules(logits, [row], torch.tensor([len(token_ids)], dtype=torch.int32))
    # Bad words are looked for among the generated tokens alone, as by vLLM: the others are out of sight.
    seen = torch.tensor([[VOCAB_SIZE] * NUM_PROMPT + token_ids[NUM_PROMPT:]])
    wanted = processors(params)(seen, logits.clone())
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    requests(), st.integers(0, 1 << 30), st.sampled_from([0.0, 0.6, 1.5]), st.sampled_from([1.0, 1.6]),
    st.sampled_from([0, 3, 9]), st.sampled_from([1.0, 0.7]), st.sampled_from([0.0, 0.05]),
)  # fmt: skip
def test_rules_come_before_penalties_and_those_before_the_filters(
    request: tuple[SamplingParams, list[int]], seed: int, temperature: float, penalty: float, top_k: int,
    top_p: float, min_p: float,
) -> None:  # fmt: skip
    """What may be drawn is what transformers' processors leave, one behind the other in vLLM's order."""
    rules, token_ids = request
    params = SamplingParams(
        logit_bias=rules.logit_bias, allowed_token_ids=rules.allowed_token_ids, bad_words_ids=rules.bad_words_ids,
        min_tokens=rules.min_tokens, temperature=temperature, repetition_penalty=penalty, top_k=top_k, top_p=top_p,
        min_p=min_p,
    )  # fmt: skip
    logits = logits_from(seed)
    seen = torch.tensor([[VOCAB_SIZE] * NUM_PROMPT + token_ids[NUM_PROMPT:]])
    scores = processors(params)(seen, logits.clone())
    if not bool(scores.isfinite().any()):
        return  # nothing is left to be drawn
    all_seen = torch.tensor([token_ids])
    scores = RepetitionPenaltyLogitsProcessor(penalty)(all_seen, scores) if penalty != 1 else scores
    if temperature:
        warpers = [TemperatureLogitsWarper(temperature), MinPLogitsWarper(min_p)]
        warpers += [TopKLogitsWarper(top_k)] if top_k else []
        for warper in (*warpers, TopPLogitsWarper(top_p)):
            scores = warper(all_seen, scores)
    rows = [SamplingRow(params, token_ids, i, NUM_PROMPT, frozenset({EOS})) for i in range(20)]
    drawn = sample(logits.expand(20, -1), rows)
    if temperature == 0:
        assert set(drawn) == {int(scores.argmax())}
    else:
        assert set(drawn) <= set(scores[0].isfinite().nonzero()[:, 0].tolist())


def test_chats_without_rules_pay_nothing() -> None:
    """Not even a copy."""
    logits = logits_from(1, rows=2)
    rows = [SamplingRow(SamplingParams(repetition_penalty=1.2, top_k=3), [1, 2, 3], 1)] * 2
    assert under_rules(logits, rows, torch.zeros(2, dtype=torch.int32)) is logits
