"""Text for the toy model: what people wrote, what programs add to it, and who answers what."""

import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tools.toy_model import drills, forms
from tools.toy_model.bpe import SPECIAL_TOKENS
from tools.toy_model.conversations import Conversation, one_turn, read_jsonl, write_jsonl
from tools.toy_model.doubt import asks_for_rare_fact, asks_for_rare_word, honest, well_known_names
from tools.toy_model.mixture import weight_of
from tools.toy_model.written import conversations_of, read_records, split

TEXTS = Path(__file__).parents[2] / "tools" / "toy_model" / "text"
RECORD = """\
# a comment
S: Be brief.
S: Short answers.
U: What is a dog?
U: dog?
A: An animal.\\nIt barks.
U: And a cat?
A: Another one, of {size}.
"""


@pytest.fixture
def rng() -> random.Random:
    return random.Random(3)


def write(folder: Path, text: str, name: str = "animals1.txt") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


# --- texts -----------------------------------------------------------------------------------------------


def test_a_record_gives_each_wording_under_two_system_prompts(tmp_path: Path, rng: random.Random) -> None:
    [record] = read_records(write(tmp_path, RECORD), "15 million")
    assert (record.source, record.wordings()) == ("written_animals", ("What is a dog?", "dog?"))
    made = list(conversations_of(record, rng, record.wordings()))
    assert Counter(c.question for c in made) == {"What is a dog?": 2, "dog?": 2}
    assert {c.system for c in made} == {"Be brief.", "Short answers."}
    assert made[0].messages[2] == ("assistant", "An animal.\nIt barks.")
    assert made[0].messages[-1] == ("assistant", "Another one, of 15 million.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("U: Hello\n", "animals1.txt, record before line 2: the turns are user"),
        ("A: Hello\nU: Hi\n", "the turns are assistant, user"),
        ("U: Hi\nA: Hello\nS: Be brief.\n", "the turns are user, assistant, system"),
        ("U: Hi\nB: Hello\n", "animals1.txt, line 2: expected 'S: ', 'U: ' or 'A: '"),
        ("U:\n", "animals1.txt, line 1: expected"),
    ],
)
def test_a_text_out_of_form_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_records(write(tmp_path, text), "1")


def test_held_out_wording_is_not_trained(tmp_path: Path) -> None:
    text = "\n".join(
        f"U: {i} one\nU: {i} two\nU: {i} three\nU: {i} four\nU: {i} five\nA: Yes.\n" for i in range(200)
    )
    held_out = 0
    rng = random.Random(1)
    for record in read_records(write(tmp_path, text), "1"):
        trained, kept = split(record, rng)
        assert sorted((*trained, *kept)) == sorted(record.wordings())
        assert record.wordings()[0] in trained
        held_out += len(kept)
    assert 15 <= held_out <= 45


def test_every_text_of_the_project_is_in_form_and_has_no_special_token() -> None:
    records = [*read_records(TEXTS, "15 million"), *read_records(TEXTS / "polish", "15 million")]
    assert len(records) > 5_000
    for record in records:
        assert weight_of(record.source).reply > 0
        for _, texts in record.turns:
            for text in texts:
                assert not any(token in text for token in SPECIAL_TOKENS), text


def test_jsonl_comes_back_as_it_was(tmp_path: Path) -> None:
    conversations = [one_turn("a", "Hi ☂", "Yes\n."), one_turn("b", "x", "y", system="z")]
    write_jsonl(tmp_path / "c.jsonl", conversations)
    assert list(read_jsonl(tmp_path / "c.jsonl")) == conversations


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"source": "a"}',
        '{"source": "a", "messages": [{"role": "assistant", "content": "x"}]}',
        '{"messages": []}',
    ],
)
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, line: str) -> None:
    good = '{"source": "a", "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}'
    (tmp_path / "c.jsonl").write_text(f"{good}\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"c\.jsonl, line 2: not a conversation"):
        list(read_jsonl(tmp_path / "c.jsonl"))


# --- drills ----------------------------------------------------------------------------------------------


def test_sums_are_right(rng: random.Random) -> None:
    for conversation in drills.sums(rng, 500):
        left, right = conversation.answer.split(" = ")
        a, sign, b = left.split()
        result = {"+": int(a) + int(b), "-": int(a) - int(b), "x": int(a) * int(b), "/": int(a) / max(1, int(b))}
        assert result[sign] == int(right)
        assert set(re.findall(r"\d+", conversation.question)) == {a, b}


def test_counting_is_by_even_steps_and_ends_where_asked(rng: random.Random) -> None:
    for conversation in drills.counting(rng, 300):
        numbers = [int(number) for number in re.findall(r"\d+", conversation.answer)]
        assert len({b - a for a, b in pairwise(numbers)}) == 1


def test_days_and_months_follow_each_other(rng: random.Random) -> None:
    answers = {conversation.answer for conversation in drills.calendar(rng, 2_000)}
    assert {"After Sunday comes Monday.", "After December comes January.", "Before B comes A."} <= answers
    assert "After Z comes A." not in answers


def test_spelling_spells(rng: random.Random) -> None:
    for conversation in drills.spelling(rng, ["rain", "boat"], 100):
        assert any(sign in conversation.answer for sign in ("r-a-i-n", "b-o-a-t", '"rain"', '"boat"'))


def test_made_up_things_are_not_known_and_named_as_asked(rng: random.Random) -> None:
    for conversation in drills.unknown(rng, 300):
        assert re.search(r"don't|never|not|nothing|only|would", conversation.answer)
        for named in re.findall(r'"([^"]+)"', conversation.answer):
            assert named in conversation.question


# --- forms -----------------------------------------------------------------------------------------------

TALK = one_turn("x", "What is rain?", "Rain is water. It falls from clouds.")


def test_a_greeting_goes_in_front(rng: random.Random) -> None:
    greeted = forms.with_greeting(TALK, rng)
    assert greeted is not None
    assert greeted.question.lower().endswith("what is rain?")
    assert greeted.question != TALK.question
    assert greeted.answer.endswith(TALK.answer)


def test_what_begins_with_a_greeting_gets_no_other(rng: random.Random) -> None:
    assert forms.with_greeting(one_turn("x", "Hello, what is rain?", "Water."), rng) is None


def test_one_sentence_is_the_first(rng: random.Random) -> None:
    short = forms.in_one_sentence(TALK, rng)
    assert short is not None
    assert (short.answer, short.question) == ("Rain is water.", TALK.question)
    assert short.system
    assert forms.in_one_sentence(short, rng) is None
    assert forms.in_one_sentence(one_turn("x", "Rain?", "Yes it is."), rng) is None


def test_capitals_and_small_letters(rng: random.Random) -> None:
    loud, quiet = forms.in_capitals(TALK, rng), forms.in_small_letters(TALK, rng)
    assert loud is not None
    assert quiet is not None
    assert (loud.answer, quiet.answer) == (TALK.answer.upper(), TALK.answer.lower())


def test_people_who_chat_and_bookings_say_so_in_the_system_prompt(rng: random.Random) -> None:
    chat = Conversation("self_dialogue", TALK.messages)
    booking = Conversation("star", TALK.messages)
    assert forms.in_its_place(chat, rng).system != forms.in_its_place(booking, rng).system
    assert forms.in_its_place(TALK, rng).system is None


# --- doubt -----------------------------------------------------------------------------------------------


def test_only_questions_about_names_nobody_wrote_of_are_doubted() -> None:
    known = well_known_names([one_turn("w", "What is the capital of France?", "Paris.")])

    def doubted(question: str) -> bool:
        return asks_for_rare_fact(one_turn("opentriviaqa", question, "x"), known)

    assert doubted("Who founded the town of Brackwater?")
    assert doubted("Who won the cup in 1974?")
    assert not doubted("Who was the king of France?")
    assert not doubted("Which is a fish, Salmon or Sparrow?")
    assert not doubted("Tell me about Brackwater.")


def test_rare_words_are_doubted_by_their_name(rng: random.Random) -> None:
    question = one_turn("english_wordnet", 'What does "fustian" mean?', "cloth")
    assert asks_for_rare_word(question, {"cloth"})
    assert not asks_for_rare_word(question, {"fustian"})
    assert not asks_for_rare_word(one_turn("english_wordnet", "What is a prison?", "x"), set())
    answer = honest(question, rng)
    assert '"fustian"' in answer.answer
    assert answer.source == "honest_english_wordnet"
