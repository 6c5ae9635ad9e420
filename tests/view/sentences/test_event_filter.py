"""Which event lines are wanted."""

from pagedchat.view.sentences.event_filter import EventFilter
from pagedchat.view.sentences.event_lines import GROUPS, MEANINGS, EventLine


def test_every_kind_has_its_meaning_in_the_menu() -> None:
    assert set(MEANINGS) == set(GROUPS)


def test_a_filter_looks_at_the_whole_line_in_any_case() -> None:
    line = EventLine(19, "COW", "1 Tale wrote 031 (ref 2) → 032")
    for text, passes in (("TALE", True), ("19 cow", True), ("  ref 2 ", True), ("code", False), ("", True)):
        assert EventFilter().with_text(text).passes(line) is passes
    assert not EventFilter().with_kinds(frozenset({"FORK"})).passes(line)
