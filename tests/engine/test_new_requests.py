"""What a sequence is given when a reply is asked of it."""

from pagedchat.engine.sampling_params import SamplingParams
from tests.engine.test_core import ask, ask_and_finish, make_engine, tokens

GREEDY = SamplingParams(max_tokens=9, seed=42)


def test_a_new_request_has_not_ended_and_computes_its_last_token_whatever_is_there() -> None:
    engine = make_engine()
    seq = engine.sequences[ask_and_finish(engine, tokens(8), max_tokens=3)]
    assert seq.finish_reason == "length"
    engine.rewind(seq.seq_id, 8)
    ask(engine, [], seq_id=seq.seq_id)
    assert (seq.num_prompt_tokens, seq.num_cached_tokens) == (8, 7)
    assert seq.finish_reason is None
    assert seq.awaits_first_run


def test_a_fork_has_its_own_seed_or_that_which_it_is_given() -> None:
    engine = make_engine()
    parent = engine.sequences[engine.open()]
    engine.extend(parent.seq_id, tokens(6), GREEDY)
    engine.step()
    plain = engine.sequences[engine.fork(parent.seq_id)]
    assert (plain.num_prompt_tokens, plain.num_cached_tokens) == (6, 6)
    assert plain.sampling_params is GREEDY
    assert isinstance(plain.seed, int)
    assert plain.seed != parent.seed == 42
    params = SamplingParams(max_tokens=4, seed=7)
    other = engine.sequences[engine.fork(parent.seq_id, params=params)]
    assert (other.sampling_params, other.seed, other.stop_length) == (params, 7, 10)


def test_seeds_are_of_64_bits() -> None:
    engine = make_engine()
    parent = ask(engine, tokens(3), max_tokens=9)
    forks = [engine.fork(parent) for _ in range(40)]
    asked = [ask(engine, tokens(3)) for _ in range(40)]
    seeds = [engine.sequences[seq_id].seed for seq_id in (*forks, *asked)]
    assert all(0 <= seed < 1 << 64 for seed in seeds)
    assert len(set(seeds)) == 80
