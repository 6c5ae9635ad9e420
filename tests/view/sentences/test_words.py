"""Numbers and signs as the inspector writes them."""

import pytest
from rich.cells import cell_len

from pagedchat.view.sentences.glyphs import SIGNS
from pagedchat.view.sentences.words import (
    block_words,
    count,
    cut,
    fit,
    short_label,
    sparkline,
    superscript,
    to_ascii,
)


@pytest.mark.parametrize("values", [[1, 2, 4, 8], [0.1, 0.2, 0.4, 0.8], [0.0037 / 3, 0.0037]])
def test_the_largest_value_has_the_highest_bar_and_nothing_has_none(values: list[float]) -> None:
    assert sparkline(values, max(values))[-1] == "█"
    assert sparkline(values, max(values), ascii_only=True)[-1] == "#"
    assert sparkline([0, *values], max(values))[0] == " "
    assert sparkline(values, 0) == " " * len(values)


def test_bars_rise_with_the_values() -> None:
    bars = sparkline(list(range(1, 9)), 8, ascii_only=True)
    ranks = [".:-=+*#".index(bar) for bar in bars]
    assert ranks == sorted(ranks)


def test_ids_are_elided_and_nouns_counted() -> None:
    assert block_words([1, 22, 333, 4444]) == "001 022 333 4444"
    assert block_words(range(9), "h") == "h000 h001 h002 h003 …"
    assert (count(1, "block"), count(0, "block")) == ("1 block", "0 blocks")


def test_our_signs_have_an_ascii_one_of_the_same_width() -> None:
    for sign, plain in SIGNS.items():
        assert str(plain).isascii()
        assert cell_len(chr(sign)) == cell_len(str(plain)) == 1


def test_text_of_others_is_left_as_it_is() -> None:
    assert to_ascii("1 海 → 002") == "1 海 > 002"


def test_long_texts_are_cut_by_cells() -> None:
    assert cut('"abc"', 5) == '"abc"'
    assert cut('"abcd"', 5) == '"abc~'
    assert cut('"漢字"', 5) == '"漢 ~'


def test_small_words() -> None:
    assert (superscript(2), superscript(12)) == ("²", "^12")
    assert fit("two tales", 6) == "two t…"
    assert fit("日本語", 4) == "日… "
    assert fit("a", 3) == "a  "
    assert short_label("3 Tell me a sea»a", 12) == "3 Tell me…»a"
    assert short_label("2 tale»a", 12) == "2 tale»a"
    assert short_label("2 tale»abcdefghijkl", 6) == "2 tal…"
    assert sparkline([0, 1, 4, 8], 8) == " ░▒█"
    assert sparkline([0, 0], 0) == "  "
