"""What is said of streams: first tokens, time for each token, silence, starving."""

from pagedchat.bench.serve.streams import Stream, figures, median_run


def test_figures_of_streams() -> None:
    steady = Stream(5, [0.1, 0.2, 0.3, 0.4, 0.5])
    starved = Stream(5, [0.1, 0.9, 0.9])
    run = figures([steady, steady, starved], host_seconds=0.03)
    assert (run.first, run.first_worst) == (0.1, 0.1)
    assert round(run.per_token, 6) == 0.1
    assert round(run.per_token_worst, 6) == 0.2
    assert round(run.longest_gap, 6) == 0.8
    assert run.pieces == 13 / 15
    assert run.host == 0.002


def test_of_each_figure_the_median_counts() -> None:
    runs = [figures([Stream(2, [first, first + 1.0])]) for first in (3.0, 1.0, 2.0)]
    assert median_run(runs).first == 2.0
