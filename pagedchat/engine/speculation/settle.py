"""What holds of a draft once the model has spoken: its leading tokens that were sampled too, and one token more.

The model samples a token after every row, as it would have done without a draft (greedy, or by the random number of
that position). As long as drafted tokens are the sampled ones, what was sampled after them stands; the first one
that differs is replaced by the sampled one, and what came after it is forgotten. So the reply is the one without
drafts, token by token, which is more than the same distribution (Leviathan et al. 2023 accept a draft with its
probability under the model, which is how often it is the token that was sampled).

Changes the parts of a batch and what was sampled; knows no blocks.
"""

from operator import eq

from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence


def settle(scheduled: list[ScheduledSequence], output: ModelRunnerOutput) -> None:
    """Cut every part with a draft, and what was sampled for it, to what holds: one token for each that it computed.

    Nothing comes after a token that ends the reply.
    """
    for index, part in enumerate(scheduled):
        if part.draft:
            tokens = accepted(part.draft, output.token_ids[index], part.sequence.stop_token_ids)
            output.token_ids[index], part.num_tokens = tokens, len(tokens)


def accepted(draft: list[int], sampled: list[int], stop_token_ids: frozenset[int] = frozenset()) -> list[int]:
    """The sampled tokens that hold.

    Args:
        draft: what was proposed.
        sampled: what the model says after the token before the draft, and after each token of it.
        stop_token_ids: tokens that end the reply.
    """
    as_sampled = [*map(eq, draft, sampled), False]  # what is behind the draft ends it
    kept = sampled[: as_sampled.index(False) + 1]
    if stop_token_ids.isdisjoint(kept):
        return kept
    return kept[: next(i for i, token in enumerate(kept) if token in stop_token_ids) + 1]
