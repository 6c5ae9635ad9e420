from pagedchat.metrics.histogram import Histogram, one_two_five


def test_value_on_a_bound_belongs_to_the_range_below() -> None:
    histogram = Histogram((1, 2, 5))
    for value in (1, 1.5, 2, 6):
        histogram.add(value)
    assert histogram.cumulative() == [(1, 1), (2, 3), (5, 3), (float("inf"), 4)]
    assert histogram.total == 10.5


def test_value_may_come_several_times_at_once() -> None:
    histogram = Histogram((1, 2))
    histogram.add(1.5, times=3)
    assert histogram.counts == [0, 3, 0]
    assert histogram.total == 4.5


def test_bounds_end_at_the_largest() -> None:
    assert one_two_five(60) == [1, 2, 5, 10, 20, 50]
    assert one_two_five(1) == [1]
