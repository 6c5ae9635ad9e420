"""Names by some of their letters."""

from hypothesis import given
from hypothesis import strategies as st

from pagedchat.chat.writing.fuzzy import ranked

NAMES = [
    "docs/use.md",
    "docs/faults.md",
    "pagedchat/tui/chat/composer.py",
    "pagedchat/cli/main.py",
    "use.md",
    "Makefile",
]


def found(typed, most=10):
    return [NAMES[index] for index in ranked(typed, NAMES, most)]


def test_letters_in_order_are_found_and_the_nearest_comes_first():
    assert found("use")[:2] == ["use.md", "docs/use.md"]
    assert found("comp") == ["pagedchat/tui/chat/composer.py"]
    assert found("mk") == ["Makefile"]
    assert found("docfa")[0] == "docs/faults.md"
    assert found("xyz") == []


def test_nothing_typed_finds_all_as_they_come():
    assert found("", 2) == NAMES[:2]


@given(st.text(max_size=5), st.lists(st.text(max_size=20), max_size=10))
def test_what_is_found_has_the_letters_and_nothing_that_has_them_is_missed(typed, names):
    letters = typed.lower()

    def has(name):
        rest = iter(name.lower())
        return all(letter in rest for letter in letters)

    assert sorted(ranked(typed, names, 100)) == [i for i, name in enumerate(names) if has(name)]
