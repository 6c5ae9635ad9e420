"""What is told of a search: counted from events alone, against the engine, live and in the past."""

import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.view.engine_view import EngineView
from pagedchat.view.groups.rows import Context, group_rows
from pagedchat.view.groups.story import MAX_PRUNED, GroupStory
from pagedchat.view.owners import owner_number, unlabelled
from tests.fakes import reciting
from tests.service.engine_rig import EngineRig
from tests.service.fake_engine import BLOCK_SIZE, ready_info
from tests.service.likely_runner import LikelyRunner
from tests.service.test_searches import REPLY, TOKENIZER, search


@pytest.fixture
def rig() -> EngineRig:
    return EngineRig(LikelyRunner(reciting(TOKENIZER, REPLY), BLOCK_SIZE))


def view_of(rig: EngineRig) -> EngineView:
    rig.loop._publish()
    view = EngineView()
    view.apply(ready_info())
    for event in rig.events:
        view.apply(event)
    return view


def story_of(view: EngineView) -> GroupStory:
    story = view.shown.groups.last
    assert story is not None
    return story


def rows(view: EngineView, width: int = 90, *, ascii_only: bool = False) -> list[str]:
    assert view.mirror is not None
    number = lambda seq_id: owner_number(seq_id, view.name(seq_id))  # noqa: E731
    context = Context(view.mirror, view.token_texts, view.name, number, width, ascii_only)
    return ["".join(text for text, _ in row) for row in group_rows(view.shown.groups.last, context)]


def events_of(rig: EngineRig) -> list[ce.CacheEvent]:
    return [event for steps in rig.of(ev.Steps) for report in steps.reports for event in report.events]


def test_counts_are_those_of_the_events_and_of_the_engine(rig: EngineRig) -> None:
    rig.send(search(1, 10, "Hi", max_tokens=30, width=4))
    rig.run_dry()
    view = view_of(rig)
    story, events = story_of(view), events_of(rig)
    assert (story.kind, story.size, story.first_step) == ("beams", 4, 0)
    assert story.num_grown == sum(isinstance(event, ce.SequenceForked) for event in events)
    assert story.num_copied == rig.core.stats().copies
    freed = [event.cause for event in events if isinstance(event, ce.BlocksFreed)]
    assert (story.num_pruned, story.num_ended) == (freed.count("pruned"), freed.count("ended"))
    assert 1 + story.num_grown == story.num_pruned + story.num_ended, "who was grown is gone"
    assert len(story.pruned) == min(MAX_PRUNED, story.num_pruned)


def test_the_tree_has_the_beams_that_live_with_their_blocks(rig: EngineRig) -> None:
    rig.send(search(1, 10, "Tell me of the boat", max_tokens=30, width=4))
    rig.step(14)
    view = view_of(rig)
    text = "\n".join(rows(view))
    living = [seq for seq in rig.core.sequences.values() if seq.group is not None]
    assert len(living) == 4
    for sequence in living:
        assert view.name(sequence.seq_id) in text
        assert all(f"{block_id:03d}" in text for block_id in sequence.block_table[-2:])
    assert "beam search, 4 wide · since step 1 · 4 beams" in text
    assert "□" not in text, "tokens of forks are told as text, too"


def test_what_was_pruned_says_which_blocks_it_gave_back(rig: EngineRig) -> None:
    rig.send(search(1, 10, "Hi", max_tokens=30, width=4))
    rig.run_dry()
    view = view_of(rig)
    pruned = story_of(view).pruned[-1]
    line = next(line for line in rows(view) if line.startswith(f"× {view.name(pruned.seq_id)} "))
    assert all(f"−{block_id:03d}" in line for block_id in pruned.given_back)
    assert "over" in rows(view)[0]


def test_a_copy_of_the_state_goes_its_own_way(rig: EngineRig) -> None:
    rig.send(search(1, 10, "Hi", max_tokens=30, width=4))
    rig.step(5)
    view = view_of(rig)
    assert view.live is not None
    twin, before = view.live.copy(), story_of(view)
    rig.events.clear()
    rig.run_dry()
    for event in rig.events:
        view.apply(event)
    assert twin.groups.last == before
    assert story_of(view).num_grown > before.num_grown


def test_each_beam_that_lives_has_its_sum_of_log_probabilities(rig: EngineRig) -> None:
    rig.send(search(1, 10, "Hi", max_tokens=30, width=4))
    rig.step(9)
    view = view_of(rig)
    [group] = rig.core.groups.searches.values()
    sums = [cum_logprob for _, cum_logprob in group.search.beams]
    assert list(story_of(view).scores.items()) == list(zip(group.seq_ids, sums, strict=True))
    drawn = "\n".join(rows(view))
    assert all(f" −{-total:.2f} [" in drawn for total in sums)


def test_one_that_began_before_all_that_is_known_is_told_from_there(rig: EngineRig) -> None:
    rig.send(search(1, 10, "Hi", max_tokens=30, width=4))
    rig.step(6)
    full = view_of(rig)
    late = EngineView()
    late.apply(ready_info())
    assert full.live is not None
    late.live = full.live.copy()
    late.live.groups._stories.clear()
    rig.events.clear()
    rig.run_dry()
    for event in rig.events:
        late.apply(event)
    assert story_of(late).size == 0
    assert "beam search · since step 8" in rows(late)[0]


def test_without_a_group_it_is_said_how_to_have_one() -> None:
    view = EngineView()
    view.apply(ready_info())
    assert "/beam 4" in " ".join(rows(view))


@pytest.mark.parametrize("width", [12, 30, 55, 120])
def test_no_line_is_wider_than_there_is_room_and_ascii_is_ascii(rig: EngineRig, width: int) -> None:
    rig.send(search(1, 10, "Hi", max_tokens=30, width=4))
    rig.step(12)
    found = rows(view_of(rig), width, ascii_only=True)
    assert all(len(line) <= width for line in found)
    assert all(line.isascii() for line in found)


def test_beams_are_called_so_in_lines_too(rig: EngineRig) -> None:
    rig.send(search(1, 10, "Hi", max_tokens=30, width=4))
    rig.run_dry()
    view = view_of(rig)
    lines = [line.text for line in view.lines]
    assert any("beam 10 → beam 11" in line for line in lines)
    begun = next(index for index, line in enumerate(lines) if "the first of 4 beams" in line)
    assert not any("request" in line for line in lines[begun:])


def test_beams_have_names_beside_those_of_chats() -> None:
    assert unlabelled(ce.FIRST_OF_PROGRAMS + 6, is_beam=True) == "beam 16"
    assert unlabelled(ce.FIRST_OF_PROGRAMS + 6) == "request 16"
    assert unlabelled(7) == "seq 7"
    assert owner_number(3, "3 tale") == 3
