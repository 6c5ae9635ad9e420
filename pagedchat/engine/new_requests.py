"""What a sequence is given when a reply is asked of it: parameters, a seed, where it ends, its place in the queue.

Knows sequences and queues, no blocks and no events.
"""

import random

from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.queues import Queues
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError


class NewRequests:
    """Makes requests of parked sequences and of forks.

    Args:
        limits: of the engine.
        queues: where requests wait.
    """

    def __init__(self, limits: EngineLimits, queues: Queues) -> None:
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
            RequestError: it lacks one.
        """
        vocab_size = self._limits.vocab_size
        for ids, what in ((token_ids, "Token"), (params.stop_token_ids, "Stop token")):
            if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
                wrong = next(token_id for token_id in ids if not 0 <= token_id < vocab_size)
                raise RequestError(
                    f"{what} id {wrong} is outside the model's vocabulary of {vocab_size} tokens.",
                    "Leave out what stands for it, or take the model's own tokenizer.",
                )

    def add(self, seq: Sequence, params: SamplingParams) -> None:
        """From parked into the queue, with everything a new request needs set."""
        seq.num_prompt_tokens = len(seq)
        seq.num_cached_tokens, seq.num_found_tokens = min(seq.num_computed, len(seq) - 1), 0
        seq.awaits_first_run = True
        seq.finish_reason = None
        self._set_params(seq, params)
        self._queues.remove(seq)
        self._enqueue(seq)

    def add_fork(self, parent: Sequence, child: Sequence, params: SamplingParams | None) -> None:
        """Have a new fork go on with its parent's request: with `params`, or else the parent's and another seed."""
        child.num_prompt_tokens = parent.num_prompt_tokens
        child.num_cached_tokens = parent.num_computed
        child.awaits_first_run = parent.awaits_first_run
        self._set_params(child, params or parent.sampling_params)
        if params is None:
            child.seed = self._random.getrandbits(64)
        self._enqueue(child)

    def _set_params(self, seq: Sequence, params: SamplingParams) -> None:
        seq.sampling_params = params
        seq.seed = self._random.getrandbits(64) if params.seed is None else params.seed
        eos: frozenset[int] = frozenset() if params.ignore_eos else self._limits.eos_token_ids
        seq.stop_token_ids = eos.union(params.stop_token_ids)
        room = self._limits.max_len - seq.num_prompt_tokens
        max_tokens = room if params.max_tokens is None else min(room, params.max_tokens)
        seq.stop_length = seq.num_prompt_tokens + max_tokens

    def _enqueue(self, seq: Sequence) -> None:
        self._arrivals += 1
        seq.arrival = self._arrivals
        self._queues.enqueue(seq, "swapped" if seq.host_block_table else "waiting")
