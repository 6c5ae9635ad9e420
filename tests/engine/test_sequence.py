"""A sequence before anything was asked of it."""

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence


def test_a_new_sequence_is_parked_and_has_nothing() -> None:
    seq = Sequence(7)
    values = {name: getattr(seq, name) for name in Sequence.__slots__ if name != "__weakref__"}
    lists = (
        "token_ids", "block_table", "host_block_table", "block_hashes", "token_hashes", "logprobs",
        "prompt_logprobs",
    )  # fmt: skip
    numbers = (
        "num_computed",
        "num_prompt_tokens",
        "num_cached_tokens",
        "num_found_tokens",
        "writable_len",
        "stop_length",
    )
    numbers = (*numbers, "seed", "priority", "arrival", "num_begun_tokens")
    expected = {"seq_id": 7, "status": "parked", "finish_reason": None, "awaits_first_run": False}
    expected |= {"cut_by": "", "held": None, "group": None, "grammar": None, "logprobs": [], "prompt_logprobs": []}
    expected |= {"sampling_params": SamplingParams(), "stop_token_ids": frozenset()}
    assert values == expected | {name: [] for name in lists} | dict.fromkeys(numbers, 0)
    assert values["awaits_first_run"] is False


def test_its_description_names_the_blocks_that_it_has_wherever_they_are() -> None:
    seq = Sequence(7)
    seq.token_ids, seq.num_computed = [1, 2, 3], 2
    seq.block_table = [5]
    assert repr(seq) == "Sequence(7, parked, tokens=3, computed=2, blocks=[5])"
    seq.block_table, seq.host_block_table = [], [8]
    assert repr(seq) == "Sequence(7, parked, tokens=3, computed=2, blocks=[8])"
