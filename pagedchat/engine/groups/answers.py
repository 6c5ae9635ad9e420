"""Several answers to one prompt (`n`): who is to be forked once the prompt is computed, and with which parameters.

The first sequence computes the prompt and draws its own first token. Then the others are forked from it, cut back
to the prompt: they share all of its blocks, compute its last token once more, and draw from it by chance of their
own. Each copies the block in which the prompt ends when it first writes there; the last one to do so writes in
place.

Knows no blocks: sharing and copying are what any fork does.
"""

import msgspec

from pagedchat.bounds import MOST_ON_WIRE
from pagedchat.engine.groups.group import SequenceGroup
from pagedchat.engine.groups.verbs import Verbs
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence


class AnswerGroup(SequenceGroup):
    """`params.n` sequences over one prompt.

    Args:
        first: was just asked for a reply, with these parameters.
    """

    def __init__(self, first: Sequence) -> None:
        super().__init__("answers", first.seq_id)
        self._first = first
        self._params = first.sampling_params

    @property
    def is_due(self) -> bool:
        """Whether the first one has a token, by which the prompt is computed."""
        first = self._first
        return len(first.token_ids) > first.num_prompt_tokens

    def is_off(self, verbs: Verbs) -> bool:
        """Whether the first one was ended, or asked something else, before it had a token."""
        first = self._first
        gone = verbs.sequences.get(first.seq_id) is not first or first.sampling_params is not self._params
        return gone or (first.status == "parked" and not self.is_due)

    def fork_others(self, verbs: Verbs) -> None:
        """All but the first, which generates, or has ended with its first token."""
        first = self._first
        for index in range(1, self._params.n):
            params = params_of(self._params, index)
            length = first.num_prompt_tokens
            child = verbs.fork(first.seq_id, params=params, length=length, grouped=True)
            if first.status == "parked":
                verbs.extend(child, [], params)
            verbs.sequences[child].logprobs.clear()  # of a token that is not its own
            self.seq_ids.append(child)


def params_of(params: SamplingParams, index: int) -> SamplingParams:
    """Those of one answer among `params.n`: a seed counts up from the first to the last, as vLLM has it; what is to
    be told of the prompt, the first one tells."""
    seed = params.seed
    if seed is not None:
        seed += index if seed + index <= MOST_ON_WIRE else index - MOST_ON_WIRE - 1
    return msgspec.structs.replace(params, n=1, seed=seed, prompt_logprobs=None)
