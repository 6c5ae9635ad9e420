"""Hashes of a sequence's tokens: the same as block by block, each made once, forgotten where tokens go."""

import pytest

from pagedchat.engine import block_hashes
from pagedchat.engine.block_hashes import ROOT, forget_hashes, hash_block, token_hashes
from pagedchat.engine.sequence import Sequence

SIZE = 4


def sequence(length: int) -> Sequence:
    seq = Sequence(1)
    seq.token_ids = [3 * i % 11 for i in range(length)]
    return seq


def chained(token_ids: list[int], count: int) -> list[bytes]:
    hashes, parent = [], ROOT
    for start in range(0, count * SIZE, SIZE):
        parent = hash_block(parent, token_ids[start : start + SIZE])
        hashes.append(parent)
    return hashes


def test_a_hash_names_the_tokens_and_all_tokens_before() -> None:
    first = hash_block(ROOT, [1, 2])
    assert hash_block(ROOT, [1, 2]) == first
    assert len({first, hash_block(ROOT, [1, 3]), hash_block(first, [1, 2]), hash_block(first, [1, 3])}) == 4


def test_a_hash_has_16_bytes_whatever_the_numbers_of_the_tokens() -> None:
    seq = sequence(SIZE)
    seq.token_ids[0] = 2**32 - 1
    assert {len(name) for name in (hash_block(ROOT, seq.token_ids), *token_hashes(seq, 1, SIZE))} == {16}


@pytest.mark.parametrize("counts", [[0], [1], [5], [1, 5], [2, 2, 4, 3]])
def test_they_are_those_of_the_blocks_in_whatever_pieces_they_are_made(counts: list[int]) -> None:
    seq = sequence(SIZE * 5 + 3)
    for count in counts:
        assert token_hashes(seq, count, SIZE)[:count] == chained(seq.token_ids, count)


def test_none_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seq = sequence(SIZE * 5)
    token_hashes(seq, 5, SIZE)
    expected = chained(seq.token_ids, 5)
    monkeypatch.delattr(block_hashes, "_hash_bytes")
    assert token_hashes(seq, 3, SIZE) == expected


@pytest.mark.parametrize(
    ("length", "left"), [(SIZE * 5, 5), (SIZE * 3 + 1, 3), (SIZE * 3, 3), (SIZE * 3 - 1, 2), (0, 0)]
)
def test_blocks_that_lost_a_token_are_forgotten(length: int, left: int) -> None:
    seq = sequence(SIZE * 5)
    token_hashes(seq, 5, SIZE)
    forget_hashes(seq, length, SIZE)
    assert len(seq.token_hashes) == left
    seq.token_ids[length:] = [9] * (SIZE * 5 - length)
    assert token_hashes(seq, 5, SIZE) == chained(seq.token_ids, 5)
