import torch

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.attention.prefix_groups import PrefixGroup, SharingRule
from pagedchat.runtime.step.batch_inputs import flatten

CPU = torch.device("cpu")


def part(token_ids: list[int], block_table: list[int], start: int, count: int) -> ScheduledSequence:
    seq = Sequence(0)
    seq.token_ids, seq.block_table = token_ids, block_table
    return ScheduledSequence(seq, start, count, start + count == len(token_ids))


def test_single_tokens_come_first_and_the_order_is_kept_otherwise() -> None:
    scheduled = [
        part([10, 11, 12, 13, 14], [7, 3], 1, 3),  # a chunk in the middle of a prompt: no sample
        part([20, 21, 22], [5], 2, 1),  # a decode
        part([30, 31], [2], 0, 2),  # a whole prompt
        part([40], [9], 0, 1),  # a prompt of one token
    ]
    inputs = flatten(scheduled, 4, CPU)
    assert inputs.token_ids.tolist() == [[22, 40, 11, 12, 13, 30, 31]]
    assert inputs.positions.tolist() == [[2, 0, 1, 2, 3, 0, 1]]
    assert inputs.sampled == [1, 3, 2]
    assert inputs.last_rows.tolist() == [0, 1, 6]
    attention = inputs.attention
    assert attention.slot_mapping.tolist() == [22, 36, 29, 30, 31, 8, 9]
    assert attention.num_decodes == 2
    assert attention.query_lens == [1, 1, 3, 2]
    assert attention.seq_lens == [3, 1, 4, 2]
    assert attention.block_tables == [[5], [9], [7, 3], [2]]


def test_chunk_crosses_into_the_next_block() -> None:
    inputs = flatten([part(list(range(9)), [4, 0, 6], 2, 7)], 4, CPU)
    assert inputs.attention.slot_mapping.tolist() == [18, 19, 0, 1, 2, 3, 24]


def test_decodes_that_share_a_prefix_come_side_by_side_before_the_prefills() -> None:
    scheduled = [
        part(list(range(9)), [4, 0, 6], 8, 1),
        part([1, 2, 3, 4, 5], [5, 1], 4, 1),
        part([30, 31], [2], 0, 2),
        part(list(range(20, 30)), [4, 0, 7], 9, 1),
    ]
    inputs = flatten(scheduled, 4, CPU, SharingRule(min_prefix=4, min_saved=8))
    assert inputs.sampled == [0, 3, 1, 2]
    assert inputs.token_ids.tolist() == [[8, 29, 5, 30, 31]]
    assert inputs.last_rows.tolist() == [0, 1, 2, 4]
    assert inputs.attention.slot_mapping.tolist() == [24, 29, 4, 8, 9]
    assert inputs.attention.block_tables == [[4, 0, 6], [4, 0, 7], [5, 1], [2]]
    assert inputs.attention.prefix_groups == [PrefixGroup(2, 2), PrefixGroup(1, 0)]
    assert flatten(scheduled, 4, CPU, SharingRule(min_prefix=4, min_saved=9)).sampled == [0, 1, 3, 2]
