"""A runner whose tokens are dictated: the model computes and samples as always, and then other tokens count.

So a model with random weights writes any text, at the speed at which it writes its own. Knows no drafts: the rows
of one are sequences to it like all others.
"""

from pagedchat.engine.output import DraftVerifier, ModelRunner, ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sequence import Sequence

_ANY_TOKEN = 5
"""After a dictated text."""


class Dictated:
    """The engine's `ModelRunner` over another one.

    Args:
        runner: that computes.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._verifier = runner if isinstance(runner, DraftVerifier) else None
        self.texts: dict[int, list[int]] = {}
        """Sequence -> what its reply is to be."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """See `engine.output.ModelRunner`."""
        return self._dictate(batch, self._runner.execute(batch))

    def most_rows(self, sequences: list[Sequence], longest: int, wanted: int) -> int:
        """See `engine.output.DraftVerifier`."""
        return wanted if self._verifier is None else self._verifier.most_rows(sequences, longest, wanted)

    def verify(self, batch: SchedulerOutput) -> ModelRunnerOutput | None:
        """See `engine.output.DraftVerifier`."""
        verified = None if self._verifier is None else self._verifier.verify(batch)
        return None if verified is None else self._dictate(batch, verified)

    def _dictate(self, batch: SchedulerOutput, output: ModelRunnerOutput) -> ModelRunnerOutput:
        for part, tokens in zip(batch.scheduled, output.token_ids, strict=True):
            text = self.texts[part.sequence.seq_id]
            end = part.start + part.num_tokens - part.sequence.num_prompt_tokens + 1
            dictated = text[end - len(tokens) : end] if tokens else []
            tokens[:] = dictated + [_ANY_TOKEN] * (len(tokens) - len(dictated))
        return output

    def check(self) -> None:
        """See `engine.output.ModelRunner`."""
        self._runner.check()
