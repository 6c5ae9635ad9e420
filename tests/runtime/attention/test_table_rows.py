import random

import pytest

from pagedchat.runtime.attention import table_rows
from pagedchat.runtime.attention.table_rows import BlockTableRows


def tables_of(rows: BlockTableRows, tables: dict[int, list[int]]) -> dict[int, list[int]]:
    gathered = rows.gather(list(tables), list(tables.values()))
    assert gathered.shape == (len(tables), max(map(len, tables.values()), default=0))
    return {seq_id: gathered[i, : len(tables[seq_id])].tolist() for i, seq_id in enumerate(tables)}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_the_tables_are_those_of_the_step(seed: int) -> None:
    choice = random.Random(seed)
    rows = BlockTableRows()
    tables: dict[int, list[int]] = {}
    for step in range(60):
        if choice.random() < 0.3:
            tables[choice.randrange(40)] = [choice.randrange(100) for _ in range(choice.randint(1, 9))]
        if tables and choice.random() < 0.3:
            del tables[choice.choice(list(tables))]
        for table in tables.values():
            if choice.random() < 0.3:
                table.append(step)
            elif choice.random() < 0.1:
                table[choice.randrange(len(table))] = 1000 + step
        batch = dict(choice.sample(list(tables.items()), choice.randint(0, len(tables))))
        assert tables_of(rows, batch) == batch


def test_only_what_changed_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def spy(values: list[int]) -> object:
        written.append(list(values))
        return int32(values)

    int32 = table_rows.int32
    monkeypatch.setattr(table_rows, "int32", spy)
    rows = BlockTableRows()
    tables = {1: [5, 6], 2: [7], 3: [8, 9]}
    tables_of(rows, tables)
    written.clear()
    tables[2].append(4)
    tables_of(rows, tables)
    tables_of(rows, {3: tables[3], 1: tables[1]})
    assert written == [[7, 4]]


def test_rows_of_sequences_that_left_are_used_again() -> None:
    rows = BlockTableRows()
    for seq_id in range(1000):
        tables_of(rows, {seq_id: [seq_id], seq_id + 1: [seq_id, 3]})
    assert len(rows._tables) <= 4
