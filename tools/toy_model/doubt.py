"""Questions about rare facts and rare words, answered with "I don't know".

A model of this size cannot hold what trivia, encyclopedias and dictionaries ask for; trained on the answers, it
learns to make up names, dates and meanings with confidence. So in the last phase those questions, when they name
something that the well-known facts in our own texts do not, get an honest answer instead.
"""

import random
import re
from collections.abc import Iterable, Set

from tools.toy_model.conversations import Conversation, one_turn

_FACTUAL = re.compile(
    r"^(who|when|where|which|in (what|which)|how (many|much|old|long)|what (year|city|country|state|was|is)|what's"
    r"|whose|name the)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=[a-z,'\"] )[\"']?[A-Z][A-Za-z.'-]+|\b\d{4}\b")
_QUOTED = re.compile(r'"([^"]+)"')
_ON_WORDS = (
    'I don\'t know the word "{x}" well enough to explain it. A dictionary will help.',
    'Sorry, I\'m not sure what "{x}" means. Please look it up in a dictionary.',
    'I don\'t know what "{x}" means.',
    '"{x}" is a word that I have hardly ever seen, so I would only be guessing.',
)
_ANSWERS = (
    "I don't know. I'm a small model and would only be guessing.",
    "I don't know that. An encyclopedia or a search engine will have the answer.",
    "Sorry, I'm not sure about that, and I don't want to tell you something wrong.",
    "That is more than I know. I'm a small model and know only the most common facts.",
    "I don't know the answer to that one.",
    "I'm not sure. I could guess, but I would probably be wrong.",
    "I can't say. A bigger model may know; this one is a toy.",
    "Good question, but I don't know the answer. Please look it up.",
)
_BY_WORD = {
    "who": (
        "I don't know who that is or was. Please look it up.",
        "I don't know who. I know only very famous people.",
    ),
    "when": ("I don't know when that was. I'm not good with dates.", "I don't know the date. Please look it up."),
    "where": ("I don't know where that is. A map can tell you.", "I'm not sure where. Please look it up."),
    "how": (
        "I don't know the exact number, and I don't want to make one up.",
        "I don't know how many or how much.",
    ),
}


def well_known_names(conversations: Iterable[Conversation]) -> set[str]:
    """Every capitalised word in the users' questions: who asks about these shall get an answer."""
    return {name for conversation in conversations for name in _names(conversation.question)}


def asks_for_rare_fact(conversation: Conversation, known: Set[str]) -> bool:
    """Whether it is a bare factual question that names something outside `known`."""
    question = conversation.question
    if not conversation.is_one_turn or conversation.system or "\n" in question or len(question) > 160:
        return False
    if not _FACTUAL.match(question) or " or " in question or ":" in question:
        return False  # a choice is answered from the question
    if conversation.source == "dolly_15k" and re.match(r"what('s| is)\b", question, re.IGNORECASE):
        return False  # mostly asks for an explanation, not for a name or a number
    names = _names(question)
    return bool(names) and not names <= known


def asks_for_rare_word(conversation: Conversation, common: Set[str]) -> bool:
    """Whether it asks for the meaning of a quoted word, or for a synonym, outside `common`."""
    word = _QUOTED.search(conversation.question)
    return word is not None and word[1].lower() not in common and "sentence" not in conversation.question


def quoted_words(conversations: Iterable[Conversation]) -> set[str]:
    """Every word in quotation marks in the users' questions."""
    return {word.lower() for c in conversations for word in _QUOTED.findall(c.question)}


def honest(conversation: Conversation, rng: random.Random) -> Conversation:
    """The same question with an honest answer."""
    first = conversation.question.split(maxsplit=1)[0].lower()
    word = _QUOTED.search(conversation.question)
    answers = _ANSWERS + _BY_WORD.get(first, ()) if word is None else tuple(a.format(x=word[1]) for a in _ON_WORDS)
    return one_turn("honest_" + conversation.source, conversation.question, rng.choice(answers))


def _names(question: str) -> set[str]:
    return {match.strip("\"'.").removesuffix("'s") for match in _NAME.findall(question)}
