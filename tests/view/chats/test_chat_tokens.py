"""Passages of a chat and the blocks that hold them, both ways."""

import pytest

from pagedchat.chat.session import ChatSession
from pagedchat.view.chats.chat_tokens import Passage, chat_tokens
from pagedchat.view.state.engine import EngineState
from tests.chat_on_engine import REPLY, ask, asked, told_engine
from tests.scripted_reports import ScriptedEngine

PROMPT = "Tell me of a boat"


def table(engine: ScriptedEngine, seq_id: int = 1) -> list[int]:
    assert engine.view.mirror is not None
    return engine.view.mirror.sequences[seq_id].block_table


def test_every_token_of_a_turn_has_its_block_and_slot() -> None:
    engine, chat = asked(PROMPT)
    tokens = chat_tokens(chat, engine.view)
    assert tokens is not None
    start = len("User: ")
    expected = [(table(engine)[at // 8], at % 8) for at in range(start, start + len(PROMPT))]
    assert list(tokens.slots_of([Passage(0, 0, len(PROMPT))])) == expected
    assert list(tokens.slots_of([Passage(0, 5, 7)])) == expected[5:7]


def test_blocks_hold_what_they_are_said_to_hold() -> None:
    engine, chat = asked(PROMPT)
    ask(engine, chat, "And then?", 9)
    tokens = chat_tokens(chat, engine.view)
    assert tokens is not None
    shown: dict[int, str] = {}
    for block_id in table(engine):
        for passage in tokens.passages_of(block_id):
            text = chat.entries[passage.turn].turn.text
            shown[passage.turn] = shown.get(passage.turn, "") + text[passage.start : passage.end]
            assert tokens.blocks_of([passage]) == {block_id}
    computed = [PROMPT, REPLY * 20, "And then?", REPLY * 8]  # the last sampled token is in no block yet
    assert list(shown.values()) == computed
    assert tokens.passages_of(63) == []


def test_a_fork_has_its_text_in_the_same_blocks() -> None:
    engine, chat = asked(PROMPT)
    engine.core.fork(1, 2)
    engine.flush()
    twin = chat.fork(2, 5)
    tokens, twins = chat_tokens(chat, engine.view), chat_tokens(twin, engine.view)
    assert tokens is not None
    assert twins is not None
    whole = [Passage(0, 0, len(PROMPT))]
    assert tokens.blocks_of(whole) == twins.blocks_of(whole) != frozenset()


@pytest.mark.parametrize(
    ("prompt", "drawn"),
    [
        ("a\x1b[31mred\x1b[0m boat", "red"),
        ("tab\tand boat", "and"),
        ("a ⛵ boat", "boat"),
        ("\x1b]0;t\x1b\\end", "end"),
    ],
)
def test_what_is_drawn_otherwise_shifts_nothing(prompt: str, drawn: str) -> None:
    engine, chat = told_engine(block_size=1, num_blocks=128), ChatSession(1, name="tale")
    ask(engine, chat, prompt, 3)
    tokens = chat_tokens(chat, engine.view)
    assert tokens is not None
    start = prompt.index(drawn)
    blocks = tokens.blocks_of([Passage(0, start, start + len(drawn))])
    exact = len("User: ") + prompt.index(drawn)
    assert set(table(engine)[exact : exact + len(drawn)]) == blocks
    shown = [passage for block_id in sorted(blocks) for passage in tokens.passages_of(block_id)]
    assert "".join(prompt[part.start : part.end] for part in shown) == drawn


def test_text_that_is_not_in_the_tokens_lights_nothing() -> None:
    engine, _ = asked(PROMPT)
    other = ChatSession(1, name="other")
    other.ask("Something else", 1)
    tokens = chat_tokens(other, engine.view)
    assert tokens is not None
    assert tokens.blocks_of([Passage(0, 0, 14)]) == frozenset()
    assert [tokens.passages_of(block_id) for block_id in table(engine)] == [[]] * len(table(engine))
    assert chat_tokens(ChatSession(9), engine.view) is None


def test_blocks_in_host_memory_are_no_device_blocks() -> None:
    engine = told_engine(block_size=4, num_blocks=14, num_host_blocks=32, preemption_mode="swap")
    first, second = ChatSession(1), ChatSession(2)
    ask(engine, first, "Tell me", 8)
    ask(engine, second, "Tell me something of a boat", 8)
    assert engine.view.mirror is not None
    assert engine.view.mirror.sequences[1].host_block_table
    tokens = chat_tokens(first, engine.view)
    assert tokens is not None
    assert tokens.blocks_of([Passage(0, 0, 7)]) == frozenset()


def test_in_the_past_the_whole_text_is_the_turn() -> None:
    engine, chat = asked(PROMPT)
    assert engine.view.live is not None
    past = EngineState(engine.view.live.info, engine.view.name)
    for report in engine.reports[:2]:
        past.fold(report)
    engine.view.show_past(past)
    tokens = chat_tokens(chat, engine.view)
    assert tokens is not None
    blocks = past.mirror.sequences[1].block_table
    assert tokens.blocks_of([Passage(0, 0, 8)]) == {blocks[0]}
    assert tokens.passages_of(blocks[1]) == [Passage(0, 8, 16)]
