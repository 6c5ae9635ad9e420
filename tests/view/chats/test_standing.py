"""Whether a chat runs or waits, and what it is said to wait for, where the chat is."""

import pytest

from pagedchat.cache_events import SequenceHeld
from pagedchat.chat.session import ChatSession
from pagedchat.tui.chat.pane_title import pane_footnote, pane_title, state_sign
from pagedchat.view.chats.standing import standing
from pagedchat.view.sentences.figures import context_text
from pagedchat.view.sentences.waiting import held_words
from tests.scripted_reports import ScriptedEngine


def asked(seq_id: int) -> ChatSession:
    chat = ChatSession(seq_id, name="tale")
    chat.ask("x", seq_id)
    chat.start()
    return chat


def test_a_chat_that_a_limit_holds_back_says_so_in_its_pane_and_does_not_seem_to_run() -> None:
    engine = ScriptedEngine(num_blocks=48)
    engine.ask(1, 20)
    engine.run(3)
    chat = asked(1)
    assert standing(chat, engine.view.present).words == "running"
    running_sign = state_sign(chat, engine.view)
    engine.core.controls.set_limit(1)
    engine.run()
    assert standing(chat, engine.view.present).words == "waiting: needs 2 blocks, the limit is 1"
    words = "waiting: needs 2 blocks, the limit is 1"
    assert pane_footnote(chat, engine.view, 80).plain == f"{words} · more with /limit off"
    assert pane_footnote(chat, engine.view, 60).plain == words
    assert state_sign(chat, engine.view).plain != running_sign.plain
    assert "t/s" not in pane_title(chat, engine.view, 2048, 100, active=True, rule="").plain
    assert context_text(chat, engine.view, 2048).endswith("waiting: needs 2 blocks, the limit is 1")
    assert (engine.view.last_batch, engine.view.tokens_per_second) == (0, 0)
    engine.core.controls.set_limit(None)
    engine.run()
    assert standing(chat, engine.view.present).words == "running"


def test_a_chat_in_host_memory_waits_too_and_a_paused_scheduler_is_the_reason() -> None:
    engine = ScriptedEngine(num_blocks=8, num_host_blocks=8, preemption_mode="swap")
    engine.ask(1, 20)
    engine.run(2)
    engine.core.controls.set_limit(1)
    engine.run()
    assert engine.view.mirror.sequences[1].status == "swapped"
    assert standing(asked(1), engine.view.present).words == "waiting: needs 2 blocks, the limit is 1"
    engine.view.present.set_paused(True)
    assert standing(asked(1), engine.view.present).words == "waiting: the scheduler is paused"


def test_a_chat_that_is_done_is_idle_whatever_its_sequence_does() -> None:
    engine = ScriptedEngine(num_blocks=48)
    assert standing(ChatSession(1), engine.view.present).words == "idle"
    assert standing(asked(1), engine.view.present).words == "running", "its sequence is not known yet"


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (None, "its turn has not come"),
        (SequenceHeld(1, "turn"), "its turn has not come"),
        (SequenceHeld(1, "limit", 24, 1), "needs 24 blocks, the limit is 1"),
        (SequenceHeld(1, "pins", 7, 6), "needs 7 blocks, pins leave 6"),
        (SequenceHeld(1, "limit and pins", 7, 3), "needs 7 blocks, limit and pins leave 3"),
        (SequenceHeld(1, "blocks", 1, 0), "needs 1 more block, 0 can be had"),
        (SequenceHeld(1, "seats", 0, 256), "no more than 256 chats at once"),
        (SequenceHeld(1, "batch", 0, 2048), "the step is full with 2048 tokens"),
        (SequenceHeld(1, "prompt"), "another chat computes the same prompt"),
    ],
)
def test_every_cause_has_its_words(held: SequenceHeld | None, words: str) -> None:
    assert held_words(held) == words
