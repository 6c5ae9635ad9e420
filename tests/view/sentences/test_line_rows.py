"""Rows of lines of different heights, held against a plain list of all of them."""

import random

from pagedchat.view.sentences.line_rows import LineRows


def test_rows_and_lines_belong_together_whatever_comes_and_goes() -> None:
    chance = random.Random(4)
    rows, plain = LineRows(), []
    for _ in range(300):
        new = [chance.randint(1, 4) for _ in range(chance.randint(0, 5))]
        assert rows.add(new) == sum(new)
        plain += new
        count = chance.randint(0, max(0, len(plain) - 20))
        assert rows.drop(count) == sum(plain[:count])
        del plain[:count]
        expected = [(line, part) for line, height in enumerate(plain) for part in range(height)]
        assert [rows.at(row) for row in range(len(rows))] == expected
        for line in range(len(plain)):
            assert [rows.at(row)[0] for row in rows.rows_of(line)] == [line] * plain[line]
