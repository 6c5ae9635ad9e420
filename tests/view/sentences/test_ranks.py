"""Ranks in words, whatever was found out of them so far."""

import msgspec

from pagedchat.engine.limits import EngineLimits
from pagedchat.events import RankInfo
from pagedchat.view.sentences.figures import engine_text
from pagedchat.view.sentences.ranks import rank_lines, ranks_in_a_line
from pagedchat.view.state.engine import EngineState
from tests.scripted_reports import pressed, ready

READY = ready(EngineLimits(num_blocks=8, block_size=16))
RANKS = (RankInfo("GPU 0: NVIDIA H200\x1b[2J", 3 << 30), RankInfo("GPU 1: NVIDIA H200", 3 << 30))


def test_one_process_is_no_rank() -> None:
    assert rank_lines(READY, None) == []
    assert ranks_in_a_line(READY, None) == ""


def test_before_the_first_step_there_are_pools_and_no_seconds() -> None:
    info = msgspec.structs.replace(READY, ranks=RANKS)
    assert ranks_in_a_line(info, None) == "rank 0: 3 GiB · 1: 3 GiB"
    lines = engine_text(EngineState(info, str)).splitlines()
    assert lines[1].startswith("Nothing has run yet")
    assert lines[2:] == [
        f"rank 0 · GPU 0: NVIDIA H200 · {info.num_blocks} blocks, 3 GiB",
        f"rank 1 · GPU 1: NVIDIA H200 · {info.num_blocks} blocks, 3 GiB",
    ]


def test_a_line_has_the_last_step_of_each() -> None:
    info = msgspec.structs.replace(READY, ranks=RANKS)
    report = pressed().view.live.mirror.last
    assert report is not None
    told = ranks_in_a_line(info, msgspec.structs.replace(report, rank_seconds=(0.00312, 0.0029)))
    assert told == "rank 0: 3 GiB, 3.1 ms · 1: 3 GiB, 2.9 ms"
