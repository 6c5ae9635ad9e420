"""Several answers to one prompt: it is computed once, its blocks are shared, each answer has chance of its own."""

import pytest

from pagedchat import cache_events as ce
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import InvalidValueError, RequestError
from tests.engine.groups.test_beams import Rig
from tests.engine.kv_simulator import expected_reply

PROMPT = [1, 2, 3, 4, 2, 3]


def ask(rig: Rig, prompt: list[int], n: int, **params: object) -> list[int]:
    """The ids of all answers, once the prompt is computed."""
    first = rig.engine.open()
    rig.engine.extend(first, prompt, SamplingParams(n=n, **{"ignore_eos": True, **params}))
    group = rig.engine.sequences[first].group
    while len(group.seq_ids) < n:
        rig.step()
    return group.seq_ids


def test_eight_answers_to_five_hundred_tokens_take_their_blocks_once_and_seven_copies() -> None:
    rig = Rig(64, block_size=16, model_len=600)
    prompt = [1 + i % 4 for i in range(500)]
    ask(rig, prompt, 8, max_tokens=8)
    assert rig.engine.stats().blocks_in_use == 32
    rig.drain()
    stats = rig.engine.stats()
    assert stats.copies == 7
    assert stats.blocks_in_use == 32 + 7, "only the block in which the prompt ends is there eight times"
    assert stats.prefill_tokens == 500 + 7
    assert {event.cause for event in rig.told(ce.BlockCopied)} == {"answer"}


@pytest.mark.parametrize("length", [1, 2, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("caching", [True, False])
def test_wherever_a_prompt_ends_nobody_copies_more_than_once(length: int, caching: bool) -> None:
    rig = Rig(enable_prefix_caching=caching)
    prompt = [1 + i % 4 for i in range(length)]
    seq_ids = ask(rig, prompt, 4, max_tokens=9)
    rig.drain()
    assert {tuple(rig.engine.sequences[seq_id].output_token_ids) for seq_id in seq_ids} == {
        tuple(expected_reply(prompt, 5, 9))
    }
    assert rig.engine.stats().copies <= 3
    assert {event.cause for event in rig.told(ce.BlockCopied)} <= {"answer", "again"}


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_answers_come_to_their_ends_where_they_do_not_fit_together(mode: str) -> None:
    rig = Rig(6, num_host_blocks=64 if mode == "swap" else 0, preemption_mode=mode)
    seq_ids = ask(rig, PROMPT, 4, max_tokens=14)
    rig.drain()
    for seq_id in seq_ids:
        assert rig.engine.sequences[seq_id].output_token_ids == expected_reply(PROMPT, 5, 14)
    assert rig.engine.stats().preemptions > 3


def test_each_answer_has_the_next_seed() -> None:
    rig = Rig()
    seq_ids = ask(rig, PROMPT, 3, seed=7)
    assert [rig.engine.sequences[seq_id].seed for seq_id in seq_ids] == [7, 8, 9]
    unseeded = ask(rig, PROMPT, 3)
    assert len({rig.engine.sequences[seq_id].seed for seq_id in unseeded}) == 3
    largest = ask(rig, PROMPT, 2, seed=2**64 - 1)
    assert [rig.engine.sequences[seq_id].seed for seq_id in largest] == [2**64 - 1, 0]


def test_the_others_follow_where_the_first_ends_at_once() -> None:
    rig = Rig()
    seq_ids = ask(rig, PROMPT, 3, max_tokens=1)
    rig.drain()
    assert [len(rig.engine.sequences[seq_id].output_token_ids) for seq_id in seq_ids] == [1, 1, 1]
    assert {rig.engine.sequences[seq_id].finish_reason for seq_id in seq_ids} == {"length"}


@pytest.mark.parametrize("verb", ["stop", "close", "rewind"])
def test_nobody_follows_one_that_is_ended_before_its_first_token(verb: str) -> None:
    rig = Rig(max_num_batched_tokens=4)
    first = rig.engine.open()
    rig.engine.extend(first, PROMPT, SamplingParams(n=3))
    rig.step()
    {
        "stop": rig.engine.stop,
        "close": rig.engine.close,
        "rewind": lambda seq_id: rig.engine.rewind(seq_id, 2),
    }[verb](first)
    rig.engine.extend(rig.engine.open(), [1], SamplingParams(max_tokens=2))
    rig.drain()
    assert len(rig.engine.sequences) == (1 if verb == "close" else 2)
    assert not rig.engine.groups.are_due


def test_a_fork_of_an_answer_is_no_answer() -> None:
    rig = Rig()
    seq_ids = ask(rig, PROMPT, 2)
    fork = rig.engine.fork(seq_ids[1])
    rig.step()
    assert rig.mirror.sequences[fork].group_id == -1
    assert [rig.mirror.sequences[seq_id].group_kind for seq_id in seq_ids] == ["answers", "answers"]


@pytest.mark.parametrize("params", [{"n": 0}, {"n": 1025}, {"n": "2"}, {"n": 2, "temperature": 0}])
def test_a_number_of_answers_that_cannot_be_is_named(params: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError, match=r"^n is"):
        SamplingParams(**params)


def test_more_answers_than_the_pool_can_hold_are_named_and_nothing_is_run() -> None:
    rig = Rig(6)
    first = rig.engine.open()
    with pytest.raises(RequestError, match=r"n is 6: .* at least 7 blocks, but the KV cache has 6"):
        rig.engine.extend(first, PROMPT, SamplingParams(n=6))
    assert (rig.engine.has_work, rig.engine.groups.are_due, rig.engine.sequences[first].token_ids) == (
        False,
        False,
        [],
    )
    rig.engine.extend(first, PROMPT, SamplingParams(n=5))
