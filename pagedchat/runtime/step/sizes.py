"""What a step holds at most, and how many tokens that is if the user does not say.

Enough to keep the device busy, and not so many that those who read a reply wait for the prompt of another.
Arithmetic on sizes.
"""

from typing import NamedTuple

CPU_TOKENS, CPU_STREAM_TOKENS = 2048, 512
GPU_TOKENS, LEAST_GPU_TOKENS = 8192, 2048
"""On an H200, 256 prompts of 128 tokens (opt-125m's shape) took 58 ms in steps of 2048 tokens, 42 ms in steps of
4096 and 32 ms in steps of 8192."""
SMALL_MODEL, SMALL_MODEL_TOKENS = 500_000_000, 32768
"""Parameters up to which a step holds more where nobody reads along, and how many tokens: a GPU is done with a
small model so soon that the host's part of each step counts. Those prompts take an H200 11.6 ms at once, and
12.2 ms in steps of 8192, between which it would wait for the host."""
LEAST_BYTES = 16 << 30
"""Of a GPU's memory, below which a step of so many tokens takes too much of what the cache could have."""
_STEP_OPERATIONS = 1e11
"""Floating-point operations that a multiprocessor does in about a tenth of a second, a modest one."""


class StepSizes(NamedTuple):
    """What a step has at most."""

    num_tokens: int
    """Of all sequences together."""
    num_seqs: int
    model_len: int
    """Tokens of a sequence."""


def gpu_batch_tokens(num_bytes: int, num_parameters: int) -> int:
    """Where nobody reads along, by the GPU's memory and the size of the model."""
    return SMALL_MODEL_TOKENS if num_parameters <= SMALL_MODEL and num_bytes >= LEAST_BYTES else GPU_TOKENS


def gpu_stream_tokens(num_multiprocessors: int, num_parameters: int) -> int:
    """The power of two between the bounds whose products take a tenth of a second at most."""
    most = num_multiprocessors * _STEP_OPERATIONS / (2 * num_parameters)
    budget = GPU_TOKENS
    while budget > max(most, LEAST_GPU_TOKENS):
        budget //= 2
    return budget
