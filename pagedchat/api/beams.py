"""Beam searches of the library: prompts in, hypotheses out. Knows the engine's groups, no steps and no turns."""

import logging

from tokenizers import Tokenizer

from pagedchat.bounds import refused
from pagedchat.cache_events import FinishReason
from pagedchat.engine.core import EngineCore
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.beams import BeamGroup
from pagedchat.engine.groups.search import Hypothesis
from pagedchat.outputs import BeamSearchOutput, BeamSearchSequence
from pagedchat.requests.prompts import Prompt, PromptEncoder

log = logging.getLogger("pagedchat.engine")


class BeamSearches:
    """Those that somebody waits for.

    Args:
        core: runs them.
        encoder: prompts to tokens.
        tokenizer: tokens to text; `None` makes none.
    """

    def __init__(self, core: EngineCore, encoder: PromptEncoder, tokenizer: Tokenizer | None) -> None:
        self._core = core
        self._encoder = encoder
        self._tokenizer = tokenizer
        self._groups: dict[str, BeamGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._groups

    @property
    def are_running(self) -> bool:
        """Whether one of them is not over."""
        return not all(group.is_over for group in self._groups.values())

    def add(self, request_id: str, prompt: Prompt, params: BeamSearchParams) -> None:
        """Begin with one; see `LLMEngine.add_beam_search`."""
        if not isinstance(params, BeamSearchParams):
            raise refused("params", params, "BeamSearchParams")
        self._groups[request_id] = self._core.groups.search(self._encoder.encode(prompt), params)

    def take(self, request_id: str) -> BeamSearchOutput | None:
        """What one that is over has found; it is forgotten then."""
        group = self._groups.get(request_id)
        if group is None or not group.is_over:
            return None
        del self._groups[request_id]
        if group.error is not None:
            log.error("Beam search %r ended by an error of pagedchat's own.", request_id, exc_info=group.error)
        return BeamSearchOutput(sequences=[self._sequence(group, one) for one in group.hypotheses()])

    def abort(self, request_id: str) -> None:
        """Forget one; what it holds is given back."""
        group = self._groups.pop(request_id, None)
        if group is not None:
            self._core.groups.end(group)

    def clear(self) -> None:
        """Forget all, with the engine."""
        self._groups.clear()

    def _sequence(self, group: BeamGroup, found: Hypothesis) -> BeamSearchSequence:
        tokens = group.prompt_token_ids + found.token_ids
        text = "" if self._tokenizer is None else self._tokenizer.decode(tokens, skip_special_tokens=False)
        reason: FinishReason = "stop" if found.is_whole else "error" if group.error is not None else "length"
        return BeamSearchSequence(tokens=tokens, cum_logprob=found.cum_logprob, text=text, finish_reason=reason)
