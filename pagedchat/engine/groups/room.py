"""Whether a group can be: what is asked, held against the limits of model and pool.

Every refusal names its parameter. Knows no sequences.
"""

from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.limits import EngineLimits
from pagedchat.errors import RequestError

MAX_CHOICES = 64
"""Most likely tokens of a sequence that a step tells."""


def check_room(name: str, count: int, num_prompt_tokens: int, limits: EngineLimits) -> None:
    """Whether `count` sequences can go on from one prompt: its full blocks are shared, each needs one of its own.

    Raises:
        RequestError: the pool has too few blocks.
    """
    needed = num_prompt_tokens // limits.block_size + count
    if needed > limits.num_blocks:
        raise RequestError(
            f"{name} is {count}: so many sequences over a prompt of {num_prompt_tokens} tokens take at least "
            f"{needed} blocks, but the KV cache has {limits.num_blocks}.",
            "Ask for fewer, or give the cache more memory (num_blocks or kv_cache_memory).",
        )


def check_search(params: BeamSearchParams, num_choices: int, num_prompt_tokens: int, limits: EngineLimits) -> None:
    """Whether a search of this width and length can be.

    Raises:
        RequestError: the model has too few tokens, or the model's context or the pool too little room.
    """
    width, most = params.beam_width, params.max_tokens
    if num_choices > min(limits.vocab_size, MAX_CHOICES):
        raise RequestError(
            f"beam_width is {width}: the {num_choices} most likely tokens of each beam are looked at, and "
            f"{min(limits.vocab_size, MAX_CHOICES)} are found at most.",
            "Ask for fewer beams.",
        )
    if num_prompt_tokens and num_prompt_tokens + most > limits.max_len:
        raise RequestError(
            f"max_tokens is {most}: with a prompt of {num_prompt_tokens} tokens that is more than the "
            f"{limits.max_len} tokens that the model's context and the KV cache hold.",
            "Ask for fewer tokens, or shorten the prompt.",
        )
    check_room("beam_width", width, num_prompt_tokens, limits)
