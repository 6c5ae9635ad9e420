"""A runner whose tokens are dictated: the model computes and samples as always, and then other tokens count.

So a model with random weights writes any text, at the speed at which it writes its own. Knows no drafts: the rows
of one are sequences to it like all others.
"""

from pagedchat.engine.output import ModelRunner, ModelRunnerOutput, SchedulerOutput

_ANY_TOKEN = 5
"""After a dictated text."""


class Dictated:
    """The engine's `ModelRunner` over another one.

    Args:
        runner: that computes.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.texts: dict[int, list[int]] = {}
        """Sequence -> what its reply is to be."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """See `engine.output.ModelRunner`."""
        output = self._runner.execute(batch)
        for part, tokens in zip(batch.scheduled, output.token_ids, strict=True):
            text = self.texts[part.sequence.seq_id]
            place = part.start + part.num_tokens - part.sequence.num_prompt_tokens
            tokens[:] = [text[place] if place < len(text) else _ANY_TOKEN for _ in tokens]
        return output

    def check(self) -> None:
        """See `engine.output.ModelRunner`."""
        self._runner.check()
