"""A sequence before anything was asked of it."""

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence, TokenLogprobs, ToldLater


def test_a_new_sequence_is_parked_and_has_nothing() -> None:
    seq = Sequence(7)
    values = {name: getattr(seq, name) for name in Sequence.__slots__ if name != "__weakref__"}
    lists = (
        "token_ids", "block_table", "host_block_table", "block_hashes", "token_hashes", "_logprobs", "_unread",
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
    expected |= {"cut_by": "", "held": None, "group": None, "grammar": None, "prompt_logprobs": []}
    expected |= {"sampling_params": SamplingParams(), "stop_token_ids": frozenset()}
    assert values == expected | {name: [] for name in lists} | dict.fromkeys(numbers, 0)
    assert values["awaits_first_run"] is False
    assert seq.logprobs == []


def test_what_steps_tell_is_read_once_and_in_order_when_it_is_asked_for() -> None:
    seq, read = Sequence(7), list[tuple[str, int]]()

    class Step:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, place: int) -> TokenLogprobs:
            read.append((self.name, place))
            return TokenLogprobs([place], [-0.5], 1)

    run = list[ToldLater]([Step("first")])
    seq.tell_of_run(run, 3)
    seq.tell_of_run([Step("second")], 0)
    assert read == []
    assert [told.token_ids for told in seq.logprobs] == [[3], [0]]
    seq.logprobs += [TokenLogprobs([9], [-1.0], 2)]
    assert [told.token_ids for told in seq.logprobs] == [[3], [0], [9]]
    assert read == [("first", 3), ("second", 0)]


def test_what_a_run_goes_on_to_tell_is_read_too_but_for_another_request() -> None:
    seq = Sequence(7)
    run = list[ToldLater]([_told(1)])
    seq.tell_of_run(run, 0)
    assert [told.token_ids for told in seq.logprobs] == [[1]]
    run += [_told(2), _told(3)]
    seq.logprobs += [TokenLogprobs([9], [-1.0], 2)]
    run.append(_told(4))
    assert [told.token_ids for told in seq.logprobs] == [[1], [2], [3], [9], [4]]
    run.append(_told(5))
    seq.logprobs = []  # another request
    assert seq.logprobs == []


def _told(token_id: int) -> list[TokenLogprobs]:
    return [TokenLogprobs([token_id], [-0.5], 1)]


def test_its_description_names_the_blocks_that_it_has_wherever_they_are() -> None:
    seq = Sequence(7)
    seq.token_ids, seq.num_computed = [1, 2, 3], 2
    seq.block_table = [5]
    assert repr(seq) == "Sequence(7, parked, tokens=3, computed=2, blocks=[5])"
    seq.block_table, seq.host_block_table = [], [8]
    assert repr(seq) == "Sequence(7, parked, tokens=3, computed=2, blocks=[8])"
