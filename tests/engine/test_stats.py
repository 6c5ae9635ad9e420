"""The counters: every one by its name, and each the sum of what the reports told."""

import random

import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.stats import EngineStats, engine_stats
from tests.engine.test_core import kinds
from tests.scripted_reports import ScriptedEngine, random_workload

NUM_BLOCKS, SIZE, NUM_HOST_BLOCKS = 14, 4, 8


def test_every_number_has_its_name() -> None:
    pool = ev.PoolCounts(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    queues = ev.QueueLengths(11, 12, 13, 14)
    counters = ev.Counters(
        steps=21, prefix_queries=22, prefix_hits=23, preemptions=24, swaps_out=25, swaps_in=26, copies=27,
        evictions=28, prefill_tokens=29, decode_tokens=30, kept_tokens=31, drafts=32, draft_tokens=33,
        accepted_tokens=34,
    )  # fmt: skip
    assert engine_stats(pool, queues, counters) == EngineStats(
        blocks_total=1, blocks_free=2, blocks_cached=3, blocks_in_use=4, blocks_shared=5, host_blocks_total=7,
        host_blocks_in_use=8, num_waiting=11, num_running=12, num_swapped=13, num_parked=14, steps=21,
        prefix_queries=22, prefix_hits=23, preemptions=24, swaps_out=25, swaps_in=26, copies=27, evictions=28,
        prefill_tokens=29, decode_tokens=30, kept_tokens=31, drafts=32, draft_tokens=33, accepted_tokens=34,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_totals_are_the_sums_of_what_was_told(mode: str) -> None:
    sizes = {"num_blocks": NUM_BLOCKS, "block_size": SIZE, "num_host_blocks": NUM_HOST_BLOCKS}
    engine = ScriptedEngine(**sizes, max_num_batched_tokens=12, preemption_mode=mode)
    for _ in random_workload(engine, random.Random(2), 400):
        pass
    told = [event for report in engine.reports for event in report.events]
    entries = [entry for report in engine.reports for entry in report.batch]
    stats = engine.core.stats()
    assert stats.preemptions == len(kinds(told, ce.SequencePreempted)) > 1
    assert stats.swaps_out == sum(sum(event.copied) for event in kinds(told, ce.SwappedOut))
    assert stats.swaps_in == sum(sum(event.copied) for event in kinds(told, ce.SwappedIn))
    assert (stats.swaps_out > stats.swaps_in > 1) == (mode == "swap")
    assert stats.copies == len(kinds(told, ce.BlockCopied)) > 1
    assert stats.evictions == len(kinds(told, ce.BlockEvicted)) > 1
    assert stats.prefix_hits == sum(event.num_tokens for event in kinds(told, ce.PrefixHit)) > 0
    assert stats.prefill_tokens == sum(entry.num_prefill for entry in entries)
    assert stats.decode_tokens == sum(entry.num_decode for entry in entries) > 1
    assert stats.steps == sum(bool(report.batch) for report in engine.reports)
