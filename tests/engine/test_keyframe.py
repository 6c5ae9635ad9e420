"""A mirror as bytes: an exact copy, and nothing else is believed."""

import msgspec
import pytest

from pagedchat.engine import keyframe
from pagedchat.engine.mirror import CacheMirror
from tests.engine.checks import copied
from tests.engine.test_core import ask, make_engine, tokens
from tests.engine.test_mirror import fold


@pytest.fixture
def mirror() -> CacheMirror:
    """Blocks in use, shared, cached and free, blocks in host memory, and a sequence that is running."""
    engine, mirror = make_engine(11, num_host_blocks=8, preemption_mode="swap"), CacheMirror(11, 4, 8)
    swapped = ask(engine, tokens(9), max_tokens=3)
    fold(mirror, engine)
    ask(engine, tokens(34, 300))
    fold(mirror, engine)
    assert mirror.sequences[swapped].host_block_table
    engine.rewind(2, 8)
    ask(engine, [7], max_tokens=9, seq_id=engine.fork(2))
    mirror.apply(engine.step())
    return mirror


def test_a_decoded_mirror_equals_the_one_that_was_encoded(mirror):
    copy = copied(mirror)
    assert copy == mirror
    assert vars(copy) == vars(mirror)
    assert copy.cached_blocks
    assert (max(copy.ref_counts), max(copy.host_ref_counts)) == (2, 1)


def test_forks_in_host_memory_share_their_blocks_in_the_copy_too():
    engine, mirror = make_engine(8, num_host_blocks=8, preemption_mode="swap"), CacheMirror(8, 4, 8)
    first = ask(engine, tokens(12))
    fold(mirror, engine)
    engine.fork(first)
    ask(engine, tokens(28, 300))
    fold(mirror, engine)
    assert mirror.host_ref_counts[:4] == [2, 2, 2, 0]
    assert copied(mirror).host_ref_counts == mirror.host_ref_counts == engine.blocks.host.pool.ref_counts


def test_a_copy_goes_its_own_way():
    engine, mirror = make_engine(num_blocks=6), CacheMirror(6, 4)
    ask(engine, tokens(6), max_tokens=6)
    mirror.apply(engine.step())
    copy = copied(mirror)
    before = keyframe.encode(mirror)
    fold(copy, engine)
    assert keyframe.encode(mirror) == before
    assert copy != mirror
    assert copy.sequences[1].status == "parked"


def test_mirrors_differ_in_anything_that_a_report_changes(mirror):
    for name in ("num_reports", "touched", "free_blocks", "sequences", "last"):
        copy = copied(mirror)
        changed = {"num_reports": 0, "touched": {}, "free_blocks": [10], "sequences": {}, "last": None}[name]
        setattr(copy, name, changed)
        assert copy != mirror, name
    assert mirror != "a mirror"


@pytest.mark.parametrize("data", [b"", b"\x90", b"nonsense", b"\xc1" * 40, msgspec.msgpack.encode(["keyframe-0"])])
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the reason
        keyframe.decode(data)


def test_every_torn_frame_is_refused(mirror):
    data = keyframe.encode(mirror)
    for length in range(0, len(data), 7):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever the reason
            keyframe.decode(data[:length])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.free_blocks.append(0), "in one place"),
        (lambda f: setattr(f, "num_blocks", 10**12), "in one place"),
        (lambda f: f.touched.update({77: 1}), "a block that does not exist"),
        (lambda f: f.findable.clear(), "cannot be found"),
        (lambda f: f.sequences.append(f.sequences[0]), "twice"),
        (lambda f: f.sequences[0].host_block_table.append(8), "host block"),
        (lambda f: next(iter(f.holders.values())).append(5), "holders differ"),
        (lambda f: f.sequences[-1].block_table.append(f.cached_blocks[0]), "holders differ"),
    ],
)
def test_frames_that_contradict_themselves_are_refused(mirror, change, sentence):
    frame = keyframe.frame_of(mirror)
    change(frame)
    with pytest.raises(ValueError, match=sentence):
        keyframe.decode(msgspec.msgpack.encode(frame))


def test_a_frame_of_before_reasons_for_waiting_were_kept_is_read(mirror):
    for seq in mirror.sequences.values():
        seq.held = None
    raw = msgspec.msgpack.decode(keyframe.encode(mirror))
    at = 1 + keyframe.Keyframe.__struct_fields__.index("sequences")
    raw[at] = [fields[:6] for fields in raw[at]]
    assert keyframe.restore(keyframe.decode(msgspec.msgpack.encode(raw))) == mirror
