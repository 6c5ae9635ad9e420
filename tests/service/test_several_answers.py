"""Several answers to one prompt side by side, as the desk asks for them: the prompt's blocks are there once."""

from typing import Any

import pytest

from pagedchat.chat.session import ChatSession
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.options import UiOptions
from tests.fakes import FakeModelRunner
from tests.service.engine_rig import EngineRig
from tests.service.fake_engine import BLOCK_SIZE, ready_info


class Desk:
    """Chats on a real engine without a model."""

    def __init__(self) -> None:
        self.rig = EngineRig(FakeModelRunner(block_size=BLOCK_SIZE))
        self._waiting: list[Any] = []
        self.desk = ChatDesk(self._waiting.append, UiOptions())
        self.desk.apply(ready_info())

    def settle(self, num_steps: int = 0) -> None:
        """Carry out what was asked for, make steps, tell the chats."""
        waiting, self._waiting[:] = list(self._waiting), []
        self.rig.send(*waiting)
        for _ in range(num_steps):
            self.rig.step()
        self.rig.loop._publish()
        for event in self.rig.events:
            self.desk.apply(event)
        self.rig.events.clear()

    def ask_several(self, chat: ChatSession, count: int, prompt: str) -> list[ChatSession]:
        chats = [chat, *self.desk.twins(chat, count - 1, prompt)]
        self.desk.submit_together(chats, prompt)
        return chats


PROMPT = "Tell me a long story of a boat that left before dawn, please"


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_prompt_is_computed_once_and_its_blocks_are_shared(count: int) -> None:
    desk = Desk()
    chat = desk.desk.new()
    chats = desk.ask_several(chat, count, PROMPT)
    desk.settle(6)
    core = desk.rig.core
    tables = [core.sequences[each.session_id].block_table for each in chats]
    num_prompt = core.sequences[chat.session_id].num_prompt_tokens
    full = num_prompt // BLOCK_SIZE
    assert len({tuple(table[:full]) for table in tables}) == 1, "full blocks of the prompt are there once"
    assert core.stats().copies <= count - 1
    assert core.stats().prefill_tokens <= num_prompt + (count - 1) * BLOCK_SIZE
    assert len({block_id for table in tables for block_id in table[full:]}) == sum(len(t[full:]) for t in tables)


def test_a_later_prompt_goes_to_forks_that_share_all_before_it() -> None:
    desk = Desk()
    chat = desk.desk.new()
    desk.desk.submit(chat, PROMPT)
    desk.settle(10)
    desk.desk.stop(chat)
    desk.settle()
    held, copies = len(desk.rig.core.sequences[1].block_table), desk.rig.core.stats().copies
    chats = desk.ask_several(chat, 4, "And then?")
    desk.settle(8)
    tables = [desk.rig.core.sequences[each.session_id].block_table for each in chats]
    assert len({tuple(table[: held - 1]) for table in tables}) == 1
    assert desk.rig.core.stats().copies - copies <= 2 * 3
    desk.rig.core.check_integrity()


def test_one_is_promoted_and_the_others_give_their_blocks_back() -> None:
    desk = Desk()
    chat = desk.desk.new()
    chats = desk.ask_several(chat, 4, PROMPT)
    desk.settle(6)
    for each in chats:
        desk.desk.stop(each)
    desk.settle()
    rivals = desk.desk.rivals(chats[2])
    assert rivals == [chats[0], chats[1], chats[3]]
    for rival in rivals:
        desk.desk.close(rival)
    desk.settle()
    core = desk.rig.core
    assert set(core.sequences) == {chats[2].session_id}
    assert core.stats().blocks_in_use == len(core.sequences[chats[2].session_id].block_table)
