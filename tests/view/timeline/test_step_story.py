"""One step in words: its batch with the text that it made, what it moved, what happened."""

import msgspec

from pagedchat.events import RankInfo
from pagedchat.view.timeline.step_story import batch_words, find_report, step_story
from tests.scripted_reports import ScriptedEngine, pressed, story


def lines(engine: ScriptedEngine, step: int) -> list[str]:
    report = find_report(engine.view, step)
    assert report is not None
    return step_story(engine.view, report)


def test_batch_moves_queues_pool_and_events_are_told() -> None:
    engine = story()
    engine.view.token_texts[7] = b" sea\n"
    assert lines(engine, 19) == [
        'batch    1 tale         decode     1 → " sea¶"',
        '         3 code         decode     1 → " sea¶"',
        '         2 tale»a       decode     1 → " sea¶"',
        '         4 notes        prefill   90 → " sea¶"',
        "moved    copied 031 → 032, 1 slot",
        "queues   4 running · 0 waiting · 0 swapped · 0 parked",
        "pool     217 free + 0 cached + 39 in use + 0 withheld = 256",
        "         24 blocks shared · 63 table entries · 0 pinned",
        "         0 of 16 host blocks in use",
        "events   FORK     1 tale → 2 tale»a: 25 blocks shared, 0 copied",
        "         OPEN     4 notes",
        "         EXTEND   4 notes: +90 prompt tokens",
        "         COW      1 tale wrote 031 (ref 2) → 032, 1 slot",
        "         RUN      2 tale»a enters the batch",
        '         MISS     4 notes differs at token 0: "#4000" not "#3000" (block 024)',
        "         ALLOC    4 notes +6: 033 034 035 036 …",
        "         RUN      4 notes enters the batch",
    ]


def test_ranks_are_told_with_their_pools_and_their_seconds() -> None:
    engine = story()
    ranks = (RankInfo("GPU 0: NVIDIA H200, 140 GiB", 3 << 30), RankInfo("GPU 1: NVIDIA H200\x1b[2J", 3 << 30))
    engine.view.live.info = msgspec.structs.replace(engine.view.live.info, ranks=ranks)
    report = find_report(engine.view, 19)
    assert report is not None
    told = step_story(engine.view, msgspec.structs.replace(report, rank_seconds=(0.00312, 0.0029)))
    assert [line for line in told if "rank " in line] == [
        "ranks    rank 0 · GPU 0: NVIDIA H200, 140 GiB · 256 blocks, 3 GiB · 3.1 ms",
        "         rank 1 · GPU 1: NVIDIA H200 · 256 blocks, 3 GiB · 2.9 ms",
    ]


def test_a_prefill_in_parts_has_nothing_sampled_yet() -> None:
    assert lines(story(), 1)[0] == "batch    1 tale         prefill  128 → nothing sampled yet"


def test_swaps_are_told_with_what_was_copied() -> None:
    engine = pressed("swap")
    assert "moved    swapped out 5 blocks, 5 copied to host memory" in lines(engine, 14)
    assert "moved    swapped in 5 blocks, 0 copied from host memory" in lines(engine, 15)


def test_a_quiet_step_says_that_nothing_happened() -> None:
    assert lines(story(), 30)[-1] == "events   no block and no sequence changed hands"


def test_events_that_are_forgotten_are_not_passed_off_as_none() -> None:
    engine = story()
    engine.view.lines.clear()
    assert lines(engine, 19)[-1] == "events   no longer kept"


def test_a_step_is_found_though_verbs_came_after_it() -> None:
    engine = story()
    engine.core.close(1)
    engine.flush()
    report = find_report(engine.view, 30)
    assert report is not None
    assert len(report.batch) == 3
    assert find_report(engine.view, 31) is None


def test_a_step_in_words() -> None:
    assert batch_words(story().reports[18]) == "step 19 · batch 4 · 93 tok"
