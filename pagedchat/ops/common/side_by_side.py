"""Two products of one input that are made at the same time, on multiprocessors of their own. Arithmetic only."""


def share_of_second(first: tuple[int, int], second: tuple[int, int], num_thread_blocks: int) -> int:
    """Thread blocks for the second one, so that the last of either is done as soon as can be.

    Args:
        first, second: units of each, which thread blocks make one after another, and what a unit takes.
        num_thread_blocks: of both, two at least.
    """
    (num_first, first_takes), (num_second, second_takes) = first, second

    def longest(count: int) -> int:
        of_first = -(-num_first // (num_thread_blocks - count)) * first_takes
        return max(of_first, -(-num_second // count) * second_takes)

    return min(range(1, num_thread_blocks), key=longest)
