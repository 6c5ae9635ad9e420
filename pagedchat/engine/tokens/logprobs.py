"""How likely tokens were: what comes back of it from a runner, and where a sequence keeps it.

The one place where it is said what goes from the step to whoever asks. A runner hands over, for each part of a
batch and each token that it sampled, a `TokenLogprobs` (`ModelRunnerOutput.logprobs`), and for the prompt tokens
that a part computed the same of each token that came next (`ModelRunnerOutput.prompt_logprobs`); `keep_logprobs`
puts them with the sequences (`Sequence.logprobs`, `Sequence.prompt_logprobs`). Of a run's steps they are read when
somebody asks for them, as a rule (`ModelRunnerOutput.told_later`): whoever does so at the end takes no time of the
steps. Knows no model, and nothing of text.
"""

from pagedchat.engine.batch import Lockstep
from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence
from pagedchat.engine.sequence import Sequence

_STEPS_TOGETHER = 256
"""Of a run that sequences know as one: what all of them have read of these goes when there are others."""


def wants_prompt_logprobs(seq: Sequence) -> bool:
    """Whether prompt tokens that are computed now are to be told of: not again after a preemption."""
    return seq.sampling_params.prompt_logprobs is not None and not knows_prompt_logprobs(seq)


def knows_prompt_logprobs(seq: Sequence) -> bool:
    """Whether there is an entry for every prompt token but the first."""
    return len(seq.prompt_logprobs) >= seq.num_prompt_tokens - 1


def num_told(part: ScheduledSequence) -> int:
    """Rows of a part whose next token is a token of the prompt of which is to be told."""
    seq = part.sequence
    if not wants_prompt_logprobs(seq):
        return 0
    return max(0, min(part.start + part.num_tokens, seq.num_prompt_tokens - 1) - part.start)


def keep_logprobs(scheduled: list[ScheduledSequence], output: ModelRunnerOutput) -> None:
    """Put what came back with the sequences, once their tokens are.

    Args:
        scheduled: the batch that was run.
        output: what came back for it.
    """
    if output.told_later is not None:  # of a run that had searches
        output.logprobs = [[output.told_later[place]] for place in range(len(scheduled))]
    for part, told in zip(scheduled, output.logprobs or (), strict=bool(output.logprobs)):
        seq = part.sequence
        missing = len(seq.token_ids) - seq.num_prompt_tokens - seq.num_begun_tokens - len(seq.logprobs)
        # Those after the token that ended it were dropped.
        seq.logprobs += told if len(told) <= missing else told[: max(0, missing)]
    for part, told in zip(scheduled, output.prompt_logprobs or (), strict=bool(output.prompt_logprobs)):
        known = part.sequence.prompt_logprobs
        if part.start <= len(known):  # else it is a fork of one that was not to tell
            known += told[len(known) - part.start :]


def keep_logprobs_of_run(run: Lockstep, output: ModelRunnerOutput) -> None:
    """The same for sequences that have just got one token each, of which nothing is dropped.

    Args:
        run: all that were run.
        output: what came back for them.
    """
    if output.told_later is not None:
        if len(run.told) % _STEPS_TOGETHER == 0:  # from now on they know where to find it
            run.told = []
            for place, seq in enumerate(run.sequences):
                seq.tell_of_run(run.told, place)
        run.told.append(output.told_later)
    for seq, entries in zip(run.sequences, output.logprobs or (), strict=bool(output.logprobs)):
        seq.logprobs += entries
