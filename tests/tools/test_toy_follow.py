"""Talks that the toy model's recipe makes by program: what follows on what was said, and the program's keys."""

import random

import pytest

from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, COMPOSER_ACTIONS, PALETTE
from pagedchat.tui.commands.registry import GROUPS
from pagedchat.tui.inspector.inspector_keys import INSPECTOR_ACTIONS
from tools.toy_model import follow
from tools.toy_model.mixture import goes_on, weight_of
from tools.toy_model.program_keys import key_questions, table
from tools.toy_model.written import Record

PAIRS = [
    (("What is rain?", "rain?"), ("Rain is water. It falls from clouds.", "Water from the sky, in drops.")),
    (("What is snow?",), ("Snow is frozen water.",)),
    (("Where is Oslo?", "oslo where"), ("Oslo lies in Norway.", "In Norway, by the sea.")),
    (("Who was Bach?",), ("Bach was a composer. He lived in Leipzig.",)),
]
STORY = "A cat sat on a wall. It looked down. A dog came by. It looked up. They said nothing. Then it rained. " * 3
TOLD = [
    ("Tell me a story about a cat.", STORY.strip()),
    ("Tell me a story about a star.", f"Star. {STORY}".strip()),
]


@pytest.fixture
def rng() -> random.Random:
    return random.Random(5)


def test_the_first_question_is_quoted_and_no_other(rng: random.Random) -> None:
    firsts = 0
    for talk in follow.remembering(rng, PAIRS, 300):
        questions = [text for role, text in talk.messages if role == "user"]
        said = [text for role, text in talk.messages if role == "assistant"]
        for question, answer in zip(questions[1:], said[1:], strict=True):
            if question.lower().startswith("what was my first"):
                firsts += 1
                assert f'"{questions[0]}"' in answer
    assert firsts > 20
    assert not goes_on("follow_memory"), "behind another talk its first question would not be the first"


def test_shorter_is_the_first_sentence_and_more_is_new(rng: random.Random) -> None:
    for talk in follow.shorter(rng, PAIRS, 50):
        long, brief = talk.messages[1][1], talk.messages[3][1]
        assert long.startswith(brief)
        assert len(brief) < len(long)
    for talk in follow.more(rng, PAIRS, 50):
        assert talk.messages[1][1] != talk.messages[3][1]


def test_a_story_goes_on_where_it_stopped(rng: random.Random) -> None:
    halves = [talk for talk in follow.what_then(rng, TOLD, 60) if talk.messages[1][1] not in dict(TOLD).values()]
    assert halves
    for talk in halves:
        assert f"{talk.messages[1][1]} {talk.messages[3][1]}" in dict(TOLD).values()


def test_facts_are_plain_answers_of_one_turn() -> None:
    fact = Record(
        "written_world", (("user", ("Where is Oslo?",)), ("assistant", ("Oslo lies in Norway.", "No\nway")))
    )
    talk = Record("written_talks", fact.turns)
    assert follow.facts([fact, talk]) == [(("Where is Oslo?",), ("Oslo lies in Norway.",))]


def test_the_keys_named_are_the_program_s() -> None:
    actions = (*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE, *INSPECTOR_ACTIONS)
    keys = {action.id: action.key_display for action in actions}
    commands = {command.usage.split()[0] for group in GROUPS.values() for command in group}
    for row in table()["keys"]:
        if "id" in row:
            assert row["key"] in (keys[row["id"]], {",": "comma"}.get(keys[row["id"]])), row["id"]
        if "command" in row:
            assert row["command"].split()[0] in commands, row["command"]


def test_questions_about_keys_name_the_key_or_the_command(rng: random.Random) -> None:
    assert weight_of("drill_keys").reply > 0
    named = [row[name].split()[0] for row in table()["keys"] for name in ("key", "command") if name in row]
    for talk in key_questions(rng, 200):
        for role, text in talk.messages:
            if role == "assistant":
                assert any(key in text for key in named), text
