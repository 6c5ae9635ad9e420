from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror
from tests.engine.test_core import ask, finish, make_engine, tokens


def fold(mirror: CacheMirror, engine) -> None:
    while engine.has_work:
        mirror.apply(engine.step())


def test_fill_and_state_follow_a_prompt_into_its_blocks():
    engine, mirror = make_engine(num_blocks=6), CacheMirror(6, 4)
    seq = ask(engine, tokens(6))
    fold(mirror, engine)
    assert [mirror.state(b) for b in range(3)] == ["in_use", "in_use", "free"]
    assert [mirror.fill(b) for b in range(3)] == [4, 2, 0]
    assert mirror.holders[:3] == [[seq], [seq], []]
    engine.close(seq)
    mirror.apply(engine.flush())
    assert [mirror.state(b) for b in range(3)] == ["cached", "free", "free"]
    assert mirror.fill(0) == 4


def test_next_out_names_the_blocks_in_the_order_in_which_they_go():
    engine, mirror = make_engine(num_blocks=5), CacheMirror(5, 4)
    for start in (100, 300):
        engine.close(_asked(engine, mirror, start))
    mirror.apply(engine.flush())
    order = mirror.next_out(5)
    seq = ask(engine, tokens(19, 500))
    finish(engine)
    assert engine.sequences[seq].block_table == order


def _asked(engine, mirror, start) -> int:
    seq = ask(engine, tokens(6, start))
    fold(mirror, engine)
    return seq


def test_touched_tells_which_report_changed_a_block():
    engine, mirror = make_engine(num_blocks=4), CacheMirror(4, 4)
    ask(engine, tokens(4), max_tokens=3)
    mirror.apply(engine.step())
    assert mirror.touched == {0: 1}
    mirror.apply(engine.step())
    assert mirror.touched == {0: 1, 1: 2}


def test_before_sees_the_state_that_an_event_changes():
    engine, mirror = make_engine(num_blocks=4), CacheMirror(4, 4)
    first = ask(engine, tokens(5))
    fold(mirror, engine)
    engine.fork(first)
    seen = []
    mirror.apply(engine.flush(), before=lambda event: seen.append((type(event), list(mirror.ref_counts))))
    assert seen == [(ev.SequenceForked, [1, 1, 0, 0])]
    assert mirror.ref_counts == [2, 2, 0, 0]


def test_a_report_keeps_what_it_tells_of_a_swap_when_the_sequence_is_cut_afterwards():
    engine = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode="swap")
    seq = ask(engine, tokens(12))
    finish(engine)
    engine.scheduler.swapper.swap_out(engine.sequences[seq])
    report = engine.flush()
    told = report.events[-1]
    before = list(told.host_block_ids)
    engine.rewind(seq, 0)
    assert told.host_block_ids == before != []
