"""Which rules of its own a row of logits is under, from a request's parameters. Knows rows, no step and no kernel.

In vLLM's order: allowed tokens, bad words, tokens that may not come yet (`min_tokens`), biases; then, elsewhere,
penalties, temperature, min-p, top-k and top-p. A token that one of the first three rules out stays out, whatever
its bias, so one entry for each token says it all. Forms that replies are held to rule out last (`structured`).
"""

from collections.abc import Iterable, Sequence

import torch

from pagedchat.ops.sampling.row_rules import BANNED, PackedRules, RuleRow, apply_rules, pack_rules
from pagedchat.runtime.step.sampling_row import SamplingRow
from pagedchat.runtime.step.upload import upload
from pagedchat.runtime.structured.masks import hold_to_forms

NO_RULES = RuleRow()


def rules_of(row: SamplingRow) -> RuleRow:
    """The rules of a row's next token."""
    params = row.params
    if not params.has_rules:
        return NO_RULES
    biases: dict[int, float] = dict(params.logit_bias or {})
    closed = params.allowed_token_ids is not None
    if params.allowed_token_ids is not None:
        biases = {token: biases.get(token, 0.0) for token in params.allowed_token_ids}
    for token in _ends_of_bad_words(params.bad_words_ids, row.token_ids[row.num_prompt_tokens :]):
        if token in biases or not closed:
            biases[token] = BANNED
    untils = dict.fromkeys(
        row.stop_token_ids if params.min_tokens else (), row.num_prompt_tokens + params.min_tokens
    )
    return RuleRow(biases, untils, closed)


def _ends_of_bad_words(words: Sequence[Sequence[int]], generated: Sequence[int]) -> Iterable[int]:
    """The tokens that would complete a word now."""
    for word in words:
        begun = len(word) - 1
        if begun == 0 or (begun <= len(generated) and list(generated[-begun:]) == list(word[:-1])):
            yield word[-1]


def upload_rules(rows: Iterable[RuleRow], device: torch.device) -> PackedRules:
    """Rules of all rows on the device; the copy is queued."""
    return PackedRules(*upload(list(pack_rules(rows)), device))


def under_rules(logits: torch.Tensor, rows: Sequence[SamplingRow], positions: torch.Tensor) -> torch.Tensor:
    """The logits by which tokens of rows are chosen: those given, where no row has a rule.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32; not changed.
        rows: one for each row of `logits`.
        positions: `[num_rows]`, int32, where the logits are: of the tokens to be chosen, in their sequences.
    """
    if not any(row.params.has_rules for row in rows):
        return logits
    ruled = apply_rules(logits, upload_rules(map(rules_of, rows), logits.device), positions)
    return hold_to_forms(ruled, [row.sequence for row in rows])
