"""What a sequence is given when a reply is asked of it: parameters, a seed, where it ends, its place in the queue.

Knows sequences and queues, no blocks and no events.
"""

import random

from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import Grammars
from pagedchat.engine.queues import Queues
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError


class NewRequests:
    """Makes requests of parked sequences and of forks.

    Args:
        limits: of the engine.
        queues: where requests wait.
        grammars: see `EngineCore`.
    """

    def __init__(self, limits: EngineLimits, queues: Queues, grammars: Grammars | None = None) -> None:
        self._grammars = grammars
        self._limits = limits
        self._queues = queues
        self._random = random.Random(limits.seed)  # noqa: S311 - for sampling, not for secrets
        self._arrivals = 0

    def check_length(self, length: int) -> None:
        """Whether a prompt of so many tokens can be answered.

        Raises:
            RequestError: it is empty, or longer than the model's context or the whole cache.
        """
        limits = self._limits
        if length == 0:
            raise RequestError("The prompt has no tokens.", "Give at least one token.")
        if length >= limits.model_len:
            raise RequestError(
                f"The prompt has {length} tokens, but the model's context is {limits.model_len}, reply included.",
                "Shorten the prompt or start a new chat.",
            )
        if length >= limits.max_len:
            needed = length // limits.block_size + 1
            raise RequestError(
                f"The prompt has {length} tokens and needs {needed} blocks with its reply; "
                f"the KV cache has {limits.num_blocks} ({limits.max_len} tokens).",
                "Give the cache more memory (--num-blocks or --kv-cache-memory) or shorten the prompt.",
            )

    def check_tokens(self, token_ids: list[int], params: SamplingParams) -> None:
        """Whether the model has these tokens, and those that `params` name. Nobody behind this asks again: a kernel
        reads the row of an embedding unchecked.

        Raises:
            RequestError: it lacks one, or has fewer than are to be told of.
        """
        vocab_size = self._limits.vocab_size
        for name in ("logprobs", "prompt_logprobs"):
            count: int | None = getattr(params, name)
            if count is not None and count > vocab_size:
                raise RequestError(
                    f"{name} is {count}, but the model has {vocab_size} tokens.", "Ask for no more than there are."
                )
        named = {"Token": token_ids, "Stop token": params.stop_token_ids}
        if params.has_rules:
            named |= {f"{name}: token": ids for name, ids in params.named_token_ids.items()}
        for what, ids in named.items():
            if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
                wrong = next(token_id for token_id in ids if not 0 <= token_id < vocab_size)
                raise RequestError(
                    f"{what} id {wrong} is outside the model's vocabulary of {vocab_size} tokens.",
                    "Leave out what stands for it, or take the model's own tokenizer.",
                )

    def check_choice(self, params: SamplingParams) -> None:
        """Whether there is a token for a reply to begin with.

        Raises:
            RequestError: its rules leave none.
        """
        if params.allowed_token_ids is None:
            return
        banned = {word[0] for word in params.bad_words_ids if len(word) == 1}
        ends = self._ends_of(params) if params.min_tokens else frozenset()
        if banned.union(ends).issuperset(params.allowed_token_ids):
            raise RequestError(
                "allowed_token_ids leaves no token: all are ruled out by bad_words or min_tokens.",
                "Allow others, or leave out one of these.",
            )

    def check_drafts(self, params: SamplingParams) -> None:
        """Whether somebody can draft as `params` ask.

        Raises:
            RequestError: no model does.
        """
        if params.speculate == "model" and self._limits.speculation.method != "model":
            raise RequestError(
                "speculate is 'model', but there is no draft model.",
                "Start with one (--speculate MODEL, or speculative_config), or choose lookup or off.",
            )

    def check_form(self, params: SamplingParams) -> None:
        """Whether a reply can be held to the form that `params` ask for.

        Raises:
            InvalidValueError, RequestError: it cannot.
        """
        self._grammar(params)

    def check_beginning(self, seq: Sequence, params: SamplingParams) -> None:
        """Whether what is to be told of its prompt can be.

        Raises:
            RequestError: a part of it is computed by now, and will not be again.
        """
        if params.prompt_logprobs is not None and seq.num_computed:
            raise RequestError(
                f"prompt_logprobs are asked of sequence {seq.seq_id}, which is computed in part.",
                "Ask them of the first prompt of a sequence.",
            )

    def add(self, seq: Sequence, params: SamplingParams, num_begun: int = 0) -> None:
        """From parked into the queue, with everything a new request needs set; its last `num_begun` tokens belong
        to the reply."""
        seq.num_prompt_tokens, seq.num_begun_tokens = len(seq) - num_begun, num_begun
        seq.num_cached_tokens, seq.num_found_tokens = min(seq.num_computed, len(seq) - 1), 0
        seq.awaits_first_run = True
        seq.finish_reason = None
        self._set_params(seq, params)
        self._queues.remove(seq)
        self._enqueue(seq)

    def add_fork(self, parent: Sequence, child: Sequence, params: SamplingParams | None) -> None:
        """Have a new fork go on with its parent's request: with `params`, or else the parent's and another seed."""
        child.num_prompt_tokens, child.num_begun_tokens = parent.num_prompt_tokens, parent.num_begun_tokens
        child.num_cached_tokens = parent.num_computed
        child.awaits_first_run = parent.awaits_first_run
        self._set_params(child, params or parent.sampling_params, None if params else parent.grammar)
        child.logprobs, child.prompt_logprobs = parent.logprobs.copy(), parent.prompt_logprobs.copy()
        if params is None:
            child.seed = self._random.getrandbits(64)
        self._enqueue(child)

    def _set_params(self, seq: Sequence, params: SamplingParams, grammar: object | None = None) -> None:
        seq.grammar = grammar or self._grammar(params)
        seq.sampling_params = params
        seq.logprobs, seq.prompt_logprobs = [], []
        seq.seed = self._random.getrandbits(64) if params.seed is None else params.seed
        seq.stop_token_ids = self._ends_of(params)
        room = self._limits.max_len - seq.num_prompt_tokens
        max_tokens = room if params.max_tokens is None else min(room, params.max_tokens)
        seq.stop_length = seq.num_prompt_tokens + max_tokens

    def _ends_of(self, params: SamplingParams) -> frozenset[int]:
        """Tokens that end a reply."""
        eos: frozenset[int] = frozenset() if params.ignore_eos else self._limits.eos_token_ids
        return eos.union(params.stop_token_ids)

    def _grammar(self, params: SamplingParams) -> object | None:
        """Kept by who compiles it, so that asking twice costs nothing."""
        form = params.structured_outputs
        if form is None:
            return None
        if self._grammars is None:
            raise RequestError("structured_outputs cannot be had of this model.")
        return self._grammars.compile(form)

    def _enqueue(self, seq: Sequence) -> None:
        self._arrivals += 1
        seq.arrival = self._arrivals
        self._queues.enqueue(seq, "swapped" if seq.host_block_table else "waiting")
