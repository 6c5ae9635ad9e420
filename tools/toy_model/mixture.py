"""How often a conversation of each source is drawn: once a round is 1. Knows no text."""

from dataclasses import dataclass
from typing import Literal

Phase = Literal["all", "reply", "polish"]
"""The first learns every token, the last the assistant's words only; a polish is short and about our own texts."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Draws a round in the two phases."""

    all: float
    reply: float


_WEIGHTS = {
    # Fluency: large, and other people's voices. They fade in the last phase.
    "self_dialogue": Weight(0.4, 0.05),
    "topical_chat": Weight(0.6, 0.05),
    "synthetic_persona_chat": Weight(0.7, 0.10),
    "schema_guided_dialogue": Weight(0.15, 0.03),
    "star": Weight(0.25, 0.05),
    "taskmaster4": Weight(0.5, 0.05),
    "fairytaleqa": Weight(0.3, 0.0),
    "african_storybook": Weight(1.0, 0.3),
    "pratham_storyweaver": Weight(1.0, 0.3),
    "aesop": Weight(1.5, 0.5),
    "tinystories": Weight(1.2, 0.7),
    "written_stories": Weight(1.5, 2.0),
    # Answers.
    "dolly_15k": Weight(1.2, 1.0),
    "oasst": Weight(2.0, 2.0),
    "self_instruct_seed": Weight(2.0, 2.0),
    "english_wordnet": Weight(1.0, 1.5),
    "rare_english_wordnet": Weight(1.0, 0.0),
    "opentriviaqa": Weight(0.7, 0.0),
    "periodic_table": Weight(1.0, 0.7),
    "chatterbot_corpus": Weight(1.0, 0.3),
    "drill_keys": Weight(2.0, 2.5),
    "jokes": Weight(2.5, 2.5),
    "personality_chat": Weight(1.0, 1.0),
    "pagedchat_basics": Weight(1.5, 1.5),
}
_BY_KIND = {
    "written": Weight(4.0, 4.5),
    "greeted": Weight(1.0, 1.5),
    "system": Weight(1.0, 1.2),
    "drill": Weight(1.0, 1.0),
    "honest": Weight(0.0, 1.0),
    "follow": Weight(1.0, 1.5),
}
_FROM_THE_BEGINNING = {"written_alone", "written_talks", "follow_memory", "follow_tour"}
_OWN = {"pagedchat_basics", "jokes"}

_POLISH = {
    "written_stories": 1.6,
    "written_system": 1.0,
    "written_words": 1.0,
    "written_world": 1.0,
    "written_people": 1.0,
    "written_everyday": 1.0,
    "written_honest": 1.0,
    "written_pagedchat": 0.6,
    "written_inference": 0.6,
    "written_identity": 0.6,
    "written_howto": 0.6,
    "written_advice": 0.8,
    "written_writing": 0.8,
    "drill_sums": 0.15,
    "drill_unknown": 0.3,
    "pagedchat_basics": 0.06,
    "dolly_15k": 0.04,
    "jokes": 0.1,
    "personality_chat": 0.04,
    "tinystories": 0.0,
}
_POLISH_BY_KIND = {"written": 0.5, "greeted": 0.06, "system": 0.06, "drill": 0.05, "honest": 0.05}


def weight_of(source: str) -> Weight:
    """The weight of a source, or of its kind: the word before the first underscore.

    Raises:
        KeyError: a source that nobody weighed.
    """
    if source in _WEIGHTS:
        return _WEIGHTS[source]
    return _BY_KIND[source.split("_", 1)[0]]


def is_own(source: str) -> bool:
    """Whether a text was written or made for this model."""
    return source in _OWN or source.split("_", 1)[0] in _BY_KIND


def goes_on(source: str) -> bool:
    """Whether its conversations may stand behind others: not those about what was said first."""
    return source not in _FROM_THE_BEGINNING


def draws(source: str, phase: Phase) -> float:
    """Expected draws of one conversation of `source` in a round of `phase`."""
    if phase == "polish":
        return _POLISH.get(source, _POLISH_BY_KIND.get(source.split("_", 1)[0], 0.0))
    weight = weight_of(source)
    return weight.all if phase == "all" else weight.reply
