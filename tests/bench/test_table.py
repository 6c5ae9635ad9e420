import pytest

from pagedchat.bench.table import Row, environment, percentile, render_table, say, show


def test_columns_are_aligned_under_the_title() -> None:
    rows = [Row("one", "1.0 tok/s"), Row("a longer name", "12.5 tok/s", "2.0 x")]
    assert render_table("Title", rows) == ("Title\n  one             1.0 tok/s\n  a longer name  12.5 tok/s  2.0 x")


def test_names_never_reach_the_terminal_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    show("a model \x1b[2J\x9b31mof\nmine")
    say("reading \x1b]0;title\x07it\nnow")
    assert capsys.readouterr() == ("a model of\nmine\n", "pagedchat bench: reading it now\n")


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 50), (99, 99), (100, 100)])
def test_percentile_is_one_of_the_values(percent: int, value: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == value


def test_percentile_of_few_values_is_the_largest() -> None:
    assert percentile([3.0, 1.0], 99) == 3.0


def test_environment_says_what_figures_depend_on() -> None:
    found = environment()
    assert found["cpu"]
    assert {"logical_cores", "python", "torch", "transformers", "system"} <= found.keys()
