"""Talks made by program from our own records: what was asked before, in other words, shorter, more, and then?

What a turn refers to is known, so every answer is right. Each function yields conversations of one source. Knows
nothing of files.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from tools.toy_model.conversations import Conversation, Message
from tools.toy_model.phrases import phrases
from tools.toy_model.written import Record

_SENTENCE = re.compile(r"(?<=[a-z0-9\"')][.!?]) +(?=[A-Z\"'])")
_STORY_ABOUT = re.compile(r"(?:story|tale) (?:about|of|with) an? ([a-z]+)[.?!]?$")
_NEVER_FACTS = ("stories", "system", "talks", "writing", "fun", "smalltalk", "code", "alone")
_PUBLIC = ("dolly_15k", "opentriviaqa", "english_wordnet")
_LONGEST = 260
_ASIDES = (("Thanks!", "You're welcome."), ("OK.", "What else would you like to know?"), ("Good.", "Ask me more."))

Pair = tuple[tuple[str, ...], tuple[str, ...]]
"""The wordings of a question, and its answers."""


def facts(records: Sequence[Record]) -> list[Pair]:
    """Questions of one turn with plain answers."""
    found = []
    for record in records:
        if len(record.turns) != 2 or record.source.removeprefix("written_") in _NEVER_FACTS:
            continue
        questions, answers = record.turns[0][1], tuple(a for a in record.turns[1][1] if _is_plain(a))
        questions = tuple(question for question in questions if len(question) < 80)
        if answers and questions:
            found.append((questions, answers))
    return found


def public_facts(conversations: Sequence[Conversation]) -> list[Pair]:
    """Short questions and answers of public sources, to be remembered."""
    return [
        ((talk.question,), (talk.answer,))
        for talk in conversations
        if talk.source in _PUBLIC and len(talk.messages) == 2 and len(talk.question) < 80 and _is_plain(talk.answer)
    ]


def stories(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Every story that is told in one turn, with the request."""
    return [
        (record.turns[0][1][0], story)
        for record in records
        if record.source == "written_stories" and len(record.turns) == 2
        for story in record.turns[1][1]
        if len(story) > 200
    ]


def remembering(rng: random.Random, pairs: Sequence[Pair], count: int) -> Iterator[Conversation]:
    """Some questions, then one about what was said."""
    for _ in range(count):
        drawn = rng.sample(pairs, rng.choice((1, 2, 2, 3)))
        asked = [(rng.choice(questions), rng.choice(answers)) for questions, answers in drawn]
        said = list(asked)
        if rng.random() < 0.25:
            said.insert(rng.randint(1, len(said)), rng.choice(_ASIDES))
        ask = rng.choice((_first, _first, _last, _last_answer, _how_many, _all_of_them))
        said.append(ask(rng, asked))
        if rng.random() < 0.3:
            said.append(rng.choice((_first, _last_answer))(rng, [asked[0], said[-1]]))
        yield _talk("follow_memory", said)


def _first(rng: random.Random, asked: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return rng.choice(phrases("follow", "first")), _quoting(rng, "first_answer", asked[0][0])


def _last(rng: random.Random, asked: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return rng.choice(phrases("follow", "last")), _quoting(rng, "last_answer", asked[-1][0])


def _last_answer(rng: random.Random, asked: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return rng.choice(phrases("follow", "again")), asked[-1][1]


def _how_many(rng: random.Random, asked: Sequence[tuple[str, str]]) -> tuple[str, str]:
    number = ("none", "one", "two", "three", "four")[len(asked)]
    answer = f"You have asked {number} question{'' if len(asked) == 1 else 's'} before this one."
    return rng.choice(phrases("follow", "how_many")), answer


def _all_of_them(rng: random.Random, asked: Sequence[tuple[str, str]]) -> tuple[str, str]:
    listed = " and ".join(f'"{question}"' for question, _ in asked)
    return rng.choice(phrases("follow", "all_of_them")), f"You asked me: {listed}"


def _quoting(rng: random.Random, kind: str, text: str) -> str:
    return rng.choice(phrases("follow", kind)).replace("{q}", text)


def rephrasing(rng: random.Random, pairs: Sequence[Pair], count: int) -> Iterator[Conversation]:
    """The same in other words: another answer to the same question."""
    several = [(questions, answers) for questions, answers in pairs if len(answers) > 1]
    for questions, answers in (rng.choice(several) for _ in range(count if several else 0)):
        question = rng.choice(questions)
        first, second = rng.sample(answers, 2)
        kind, before = rng.choice((("rephrase", ""), ("rephrase", ""), ("sure", "Yes. ")))
        if second.startswith(("Yes", "No", "I ", "Sorry")):
            kind, before = "rephrase", ""
        yield _talk("follow_rephrase", [(question, first), (rng.choice(phrases("follow", kind)), before + second)])


def shorter(rng: random.Random, pairs: Sequence[Pair], count: int) -> Iterator[Conversation]:
    """An answer of several sentences, then its first one alone."""
    for question, answer in _long_answers(rng, pairs, count):
        brief = _sentences(answer)[0]
        yield _talk("follow_shorter", [(question, answer), (rng.choice(phrases("follow", "shorter")), brief)])


def more(rng: random.Random, pairs: Sequence[Pair], count: int) -> Iterator[Conversation]:
    """The first sentence of an answer and then what comes after it, or one answer and then another."""
    several = [(questions, answers) for questions, answers in pairs if len(answers) > 1]
    for questions, answers in (rng.choice(several) for _ in range(count // 2 if several else 0)):
        first, second = sorted(rng.sample(answers, 2), key=len)
        yield _talk(
            "follow_more", [(rng.choice(questions), first), (rng.choice(phrases("follow", "more")), second)]
        )
    for question, answer in _long_answers(rng, pairs, count - count // 2):
        head, *rest = _sentences(answer)
        yield _talk("follow_more", [(question, head), (rng.choice(phrases("follow", "more")), " ".join(rest))])


def _long_answers(rng: random.Random, pairs: Sequence[Pair], count: int) -> Iterator[tuple[str, str]]:
    long = [
        (questions, answer) for questions, answers in pairs for answer in answers if len(_sentences(answer)) > 1
    ]
    for questions, answer in (rng.choice(long) for _ in range(count if long else 0)):
        yield rng.choice(questions), answer


def any_story(rng: random.Random, told: Sequence[tuple[str, str]], count: int) -> Iterator[Conversation]:
    """A story about anything; another one."""
    for _ in range(count if len(told) > 1 else 0):
        first, second = rng.sample(told, 2)
        request = rng.choice(phrases("follow", "any_story")) if rng.random() < 0.6 else first[0]
        turns = [(request, first[1])]
        if rng.random() < 0.5:
            turns.append((rng.choice(phrases("follow", "another_story")), second[1]))
        yield _talk("follow_story", turns)


def what_then(rng: random.Random, told: Sequence[tuple[str, str]], count: int) -> Iterator[Conversation]:
    """A story, and how it goes on: its second half, or another day of its hero."""
    makers: tuple[Callable[..., Conversation | None], ...] = (_in_halves, _another_day, _another_day)
    tried = (rng.choice(makers)(rng, *rng.choice(told)) for _ in range(20 * count))
    yield from islice((talk for talk in tried if talk is not None), count)


def _in_halves(rng: random.Random, request: str, story: str) -> Conversation | None:
    sentences = _sentences(story)
    if len(sentences) < 6 or "\n" in story:
        return None
    begin = request[:1].lower() + request[1:]
    asked = rng.choice(phrases("follow", "begin_story")) + begin if rng.random() < 0.8 else request
    cut = len(sentences) // 2
    halves = " ".join(sentences[:cut]), " ".join(sentences[cut:])
    if halves[0].count('"') % 2:
        return None
    return _talk("follow_then", [(asked, halves[0]), (rng.choice(phrases("follow", "what_then")), halves[1])])


def _another_day(rng: random.Random, request: str, story: str) -> Conversation | None:
    about = _STORY_ABOUT.search(request.lower())
    if about is None or f" {about[1]}" not in story.lower() or about[1] in ("short", "funny", "sad", "little"):
        return None
    then = rng.choice(phrases("follow", "another_day")).replace("{x}", about[1])
    turns = [(request, story), (rng.choice(phrases("follow", "what_then")), then)]
    if rng.random() < 0.25:
        turns.append((rng.choice(phrases("follow", "who")), f"The story is about a {about[1]}."))
    return _talk("follow_then", [(q, re.sub(r"\ba (?=[aeio])", "an ", a) if len(a) < 60 else a) for q, a in turns])


def tour_talks(rng: random.Random, told: Sequence[tuple[str, str]], count: int) -> Iterator[Conversation]:
    """The requests of the program's tour, in its order and under its system prompt, with stories of ours."""
    subjects = phrases("follow", "tour_subjects")
    by_subject = {
        subject: [
            story for request, story in told if (found := _STORY_ABOUT.search(request)) and found[1] == subject
        ]
        for subject in subjects
    }
    if not all(by_subject.values()):
        return
    sentences = phrases("follow", "tour_system")
    for _ in range(count):
        system = " ".join(sentences[index % len(sentences)] for index in range(rng.randint(1, 6)))
        first = rng.choice((0, 0, 0, 1, 2, 3))
        order = [subjects[(first + index) % len(subjects)] for index in range(rng.randint(1, 4))]
        turns = [(f"Tell me a story about a {subject}.", rng.choice(by_subject[subject])) for subject in order]
        talk = _talk("follow_tour", turns)
        yield talk.under(system) if rng.random() < 0.8 else talk


def _is_plain(answer: str) -> bool:
    return "\n" not in answer and 12 < len(answer) < _LONGEST


def _sentences(text: str) -> list[str]:
    return _SENTENCE.split(text)


def _talk(source: str, turns: Sequence[tuple[str, str]]) -> Conversation:
    messages: list[Message] = []
    for question, answer in turns:
        messages += [("user", question), ("assistant", answer)]
    return Conversation(source, tuple(messages))
