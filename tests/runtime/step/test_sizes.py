import pytest

from pagedchat.runtime.step.sizes import gpu_batch_tokens, gpu_stream_tokens


def test_where_nobody_reads_along_a_gpu_gets_large_steps() -> None:
    assert gpu_batch_tokens(140 << 30, 8_000_000_000) == 8192


def test_small_models_get_larger_ones_there_if_there_is_memory_enough() -> None:
    assert gpu_batch_tokens(140 << 30, 125_000_000) == 32768
    assert gpu_batch_tokens(16 << 30, 125_000_000) == 32768
    assert gpu_batch_tokens(12 << 30, 125_000_000) == 8192


@pytest.mark.parametrize(
    ("num_multiprocessors", "num_parameters", "budget"),
    [
        (132, 125_000_000, 8192),
        (132, 1_200_000_000, 4096),
        (132, 8_000_000_000, 2048),
        (28, 125_000_000, 8192),
        (28, 1_200_000_000, 2048),
    ],
)
def test_readers_wait_less_the_smaller_the_gpu_and_the_larger_the_model(
    num_multiprocessors: int, num_parameters: int, budget: int
) -> None:
    assert gpu_stream_tokens(num_multiprocessors, num_parameters) == budget
