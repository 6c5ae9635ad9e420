"""A runner without a model that also tells how likely tokens were, of those who ask."""

import math
import struct
from typing import Any

from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sequence import TokenLogprobs
from tests.fakes import FakeModelRunner

SHARES = [0.6, 0.2, 0.1, 0.05, 0.03, 0.01]
"""Of the token that comes, and of those that might have."""
LOGPROBS = [struct.unpack("<f", struct.pack("<f", math.log(share)))[0] for share in SHARES]
"""Their logarithms as float32, which is what runners work them out in."""


def told(token_id: int, count: int) -> TokenLogprobs:
    """The next token, and the ids after it as its alternatives."""
    token_ids = [token_id + i for i in range(count)]
    logprobs = [LOGPROBS[min(i, len(LOGPROBS) - 1)] - max(0, i - 5) for i in range(count)]
    return TokenLogprobs([token_id, *token_ids], [LOGPROBS[0], *logprobs], 1)


class LikelyRunner(FakeModelRunner):
    """What comes is the likeliest."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        output = super().execute(batch)
        output.logprobs = [
            self._told(part, ids) for part, ids in zip(batch.scheduled, output.token_ids, strict=True)
        ]
        return output

    def _told(self, part: Any, token_ids: list[int]) -> list[TokenLogprobs]:
        wanted = part.sequence.sampling_params.logprobs
        return [] if wanted is None else [told(token_id, wanted) for token_id in token_ids]
