import statistics

from pagedchat.runtime.randomness import uniform


def test_same_seed_and_position_same_number() -> None:
    assert uniform(7, 3) == uniform(7, 3)
    assert uniform(-1, 3) == uniform((1 << 64) - 1, 3)


def test_numbers_are_spread_evenly_over_zero_to_one() -> None:
    for numbers in ([uniform(0, i) for i in range(4000)], [uniform(i, 0) for i in range(4000)]):
        assert all(0 <= number < 1 for number in numbers)
        assert len(set(numbers)) == 4000
        assert abs(statistics.fmean(numbers) - 0.5) < 0.02
        assert all(abs(sum(k <= 8 * n < k + 1 for n in numbers) - 500) < 90 for k in range(8))


def test_neighbouring_seeds_and_positions_are_unrelated() -> None:
    for step in ((1, 0), (0, 1), (1, -1)):
        pairs = [(uniform(i, 5000 + i), uniform(i + step[0], 5000 + i + step[1])) for i in range(3000)]
        assert abs(statistics.correlation(*zip(*pairs, strict=True))) < 0.06
