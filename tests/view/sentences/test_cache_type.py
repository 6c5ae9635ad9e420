"""A block's bytes and what a small cache saves, from what the engine said alone."""

import msgspec

from pagedchat.events import RankInfo
from pagedchat.view.sentences.cache_type import block_bytes_text, saved_bytes
from tests.fakes_tui import READY

SMALL = msgspec.structs.replace(
    READY, num_layers=12, block_size=16, num_kv_heads=12, head_dim=64, dtype="float16", kv_cache_dtype="fp8",
    block_bytes=12 * 2 * 16 * 12 * (64 + 2),
)  # fmt: skip


def test_a_small_cache_saves_what_its_elements_would_take_less_its_scales() -> None:
    assert saved_bytes(SMALL) == 12 * 2 * 16 * 12 * (128 - 66)
    assert block_bytes_text(SMALL) == "297 KiB, fp8, saves 279 KiB"
    assert saved_bytes(msgspec.structs.replace(SMALL, dtype="float32")) == 12 * 2 * 16 * 12 * (256 - 66)


def test_a_cache_of_the_models_own_type_saves_nothing() -> None:
    assert saved_bytes(READY) == 0
    assert block_bytes_text(msgspec.structs.replace(READY, block_bytes=4096)) == "4 KiB"


def test_each_rank_has_a_part_of_a_block() -> None:
    cut = msgspec.structs.replace(READY, block_bytes=4096, ranks=(RankInfo("a", 1), RankInfo("b", 1)))
    assert block_bytes_text(cut) == "4 KiB on each of 2 ranks"


def test_a_type_that_is_not_known_is_not_guessed_at() -> None:
    assert saved_bytes(msgspec.structs.replace(SMALL, dtype="float8")) == 0
