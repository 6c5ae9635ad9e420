"""Which cases run every time: of a covering set none is missing, and every test that is named is there."""

from pathlib import Path
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from tests.deep import COVERED, EVERY, covering, names_by_file

ROOT = Path(__file__).parents[1]


class Case:
    """Hashable by identity, like a test."""

    def __init__(self, values):
        self.callspec = SimpleNamespace(id="-".join(map(str, values)))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2)), min_size=1, unique=True))
def test_every_value_of_every_parameter_occurs(rows):
    cases = [Case(row) for row in rows]
    chosen = covering(cases)
    assert len(set(chosen)) == len(chosen) <= sum(len(set(column)) for column in zip(*rows, strict=True))
    for position in range(3):
        wanted = {row[position] for row in rows}
        assert {int(each.callspec.id.split("-")[position]) for each in chosen} == wanted


def test_of_all_pairs_of_equals_as_many_are_chosen_as_there_are_values():
    cases = [Case((a, b)) for a in range(6) for b in range(6)]
    assert len(covering(cases)) == 6


def test_every_test_that_is_named_is_there():
    for file, names in names_by_file().items():
        text = (ROOT / file).read_text(encoding="utf-8")
        missing = [name for name in names if f"def {name}(" not in text]
        assert missing == [], file


def test_a_test_is_in_one_list():
    assert not COVERED & set(EVERY)
    assert all(number > 1 for number in EVERY.values())
