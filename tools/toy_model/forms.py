"""Variations of a conversation that keep it true: greetings in front, people's typing, system prompts about form.

Each takes a conversation and gives another one, or `None` where it does not fit.
"""

import random
import re
from collections.abc import Callable

from tools.toy_model.conversations import Conversation, Message
from tools.toy_model.phrases import phrases

_SENTENCE = re.compile(r"(?<=[a-z0-9\"')][.!?]) +(?=[A-Z\"'])")
_SECOND_PERSON_CHAT = {"self_dialogue", "topical_chat", "synthetic_persona_chat"}
_TASKS = {"schema_guided_dialogue", "star", "taskmaster4"}

Form = Callable[[Conversation, random.Random], Conversation | None]


def in_its_place(conversation: Conversation, rng: random.Random) -> Conversation:
    """Chats between people and bookings get a system prompt that says so.

    Without it the model would take itself for a fan of a football team, or offer to book a flight.
    """
    if conversation.system is None and conversation.source in _SECOND_PERSON_CHAT:
        return conversation.under(rng.choice(phrases("forms", "people_chatting")))
    if conversation.system is None and conversation.source in _TASKS:
        return conversation.under(rng.choice(phrases("forms", "booking")))
    return conversation


def with_greeting(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """A greeting before the question, and often one before the answer."""
    question, answer = conversation.question, conversation.answer
    if "\n" in question or _begins_with_greeting(question) or conversation.system:
        return None
    greeting = rng.choice(phrases("forms", "greetings"))
    joint = " " if greeting.endswith("!") else rng.choice((", ", "! ", ". ", " "))
    polite = greeting not in phrases("forms", "no_greeting_back")
    if not polite:
        joint = ", "
    asked = question if joint[0] in "!." or question.startswith("I") else question[:1].lower() + question[1:]
    if rng.random() < 0.3:
        greeting = greeting.lower()
    back = (
        rng.choice(phrases("forms", "greeting_back"))
        if polite and not _begins_with_greeting(answer) and "=" not in answer
        else ""
    )
    return _with_first_turn(conversation, f"{greeting}{joint}{asked}", back + answer)


def as_typed(conversation: Conversation, rng: random.Random) -> Conversation:
    """The user's first words as people type them: lower case, no end mark, at times two letters swapped."""
    question = conversation.question.lower().rstrip("?.!")
    letters = [place for place in range(1, len(question) - 2) if question[place : place + 2].isalpha()]
    if letters and rng.random() < 0.3:
        place = rng.choice(letters)
        question = question[:place] + question[place + 1] + question[place] + question[place + 2 :]
    return _with_first_turn(conversation, question or conversation.question, conversation.answer)


def under_neutral(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """Under a system prompt that changes nothing."""
    return None if conversation.system else conversation.under(rng.choice(phrases("forms", "neutral")))


def in_one_sentence(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """Only the first sentence of each answer, where some answer has more."""
    if conversation.system or any("\n" in text for role, text in conversation.messages if role == "assistant"):
        return None
    short = _mapped(conversation, lambda text: _SENTENCE.split(text, maxsplit=1)[0])
    first = _SENTENCE.split(conversation.answer, maxsplit=1)
    if short.messages == conversation.messages or len(first[0].split()) < 3:
        return None
    return short.under(rng.choice(phrases("forms", "one_sentence")))


def in_capitals(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """Every answer in capital letters."""
    return (
        None
        if _is_long(conversation)
        else _mapped(conversation, str.upper).under(rng.choice(phrases("forms", "capitals")))
    )


def in_small_letters(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """Every answer in small letters."""
    return (
        None
        if _is_long(conversation)
        else _mapped(conversation, str.lower).under(rng.choice(phrases("forms", "small")))
    )


def with_affix(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """A fixed word at the beginning or the end of every answer."""
    if _is_long(conversation):
        return None
    affix = rng.choice(phrases("forms", "affixes"))
    if rng.random() < 0.5:
        return _mapped(conversation, lambda text: f"{affix} {text}").under(
            rng.choice(phrases("forms", "begin")).format(x=affix)
        )
    return _mapped(conversation, lambda text: f"{text} {affix}").under(
        rng.choice(phrases("forms", "end")).format(x=affix)
    )


SYSTEM_FORMS: tuple[tuple[float, Form], ...] = (
    (0.36, under_neutral),
    (0.26, in_one_sentence),
    (0.18, in_capitals),
    (0.06, in_small_letters),
    (0.14, with_affix),
)
"""Each with its share."""


def under_some_system(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """One of `SYSTEM_FORMS`, or `None` where it does not fit."""
    [(_, form)] = rng.choices(SYSTEM_FORMS, [share for share, _ in SYSTEM_FORMS])
    return form(conversation, rng)


def _is_long(conversation: Conversation) -> bool:
    return conversation.system is not None or len(conversation.answer) > 300 or "\n" in conversation.answer


def _mapped(conversation: Conversation, change: Callable[[str], str]) -> Conversation:
    messages: list[Message] = [
        (role, change(text) if role == "assistant" else text) for role, text in conversation.messages
    ]
    return Conversation(conversation.source, tuple(messages))


def _with_first_turn(conversation: Conversation, question: str, answer: str) -> Conversation:
    place = 0 if conversation.system is None else 1
    messages = list(conversation.messages)
    messages[place : place + 2] = [("user", question), ("assistant", answer)]
    return Conversation(conversation.source, tuple(messages))


def _begins_with_greeting(text: str) -> bool:
    return (
        re.match(r"(hello|hi|hey|good (morning|evening|afternoon|day|night)|howdy|yo|bye|thank)\b", text.lower())
        is not None
    )
