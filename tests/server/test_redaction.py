"""Whoever adds a field to a cache event says here whether others may see it."""

from typing import get_args

from pagedchat.cache_events import ANOTHERS, BeamsScored, CacheEvent
from pagedchat.server.redaction import HASHES, NUMBERS, OF_SEARCHES, TOKENS, Eyes, OpaqueHashes

FOR_ALL = {
    "block_id", "block_ids", "block_idx", "cached_block_id", "cause", "copied", "dst", "grouped", "host_block_ids",
    "kind", "length", "mode", "num_cached", "num_computed", "num_freed", "num_needed", "num_recomputed",
    "num_slots", "num_there", "num_tokens", "position", "reason", "size", "src", "status", "was",
}  # fmt: skip
"""Blocks, lengths, counts and causes."""


def test_every_field_of_every_event_is_mapped_redacted_or_for_all():
    fields = {name for kind in get_args(CacheEvent) for name in kind.__struct_fields__}
    assert fields - FOR_ALL - NUMBERS - TOKENS - HASHES - OF_SEARCHES == set()


def test_how_likely_beams_are_is_for_who_searches():
    scored = BeamsScored([7, 9], [-1.5, -2.5])
    searching, other = Eyes({7: 1, 9: 2}, OpaqueHashes()), Eyes({3: 1}, OpaqueHashes())
    assert searching.event(scored, lambda _: True) == BeamsScored([1, 2], [-1.5, -2.5])
    assert other.event(scored, lambda _: True) == BeamsScored([ANOTHERS + 7, ANOTHERS + 9], [])


def test_hashes_say_which_are_equal_and_differ_from_server_to_server():
    one, other = OpaqueHashes(), OpaqueHashes()
    assert one(b"hash") == one(b"hash") != one(b"another")
    assert one(b"hash") != other(b"hash")
    assert one(b"") == b""
