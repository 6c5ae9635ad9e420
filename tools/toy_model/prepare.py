"""Sources, our own texts and drills -> the conversations to train on and those to validate on."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tools.toy_model import drills, follow
from tools.toy_model.conversations import Conversation, read_jsonl, write_jsonl
from tools.toy_model.doubt import asks_for_rare_fact, asks_for_rare_word, honest, quoted_words, well_known_names
from tools.toy_model.forms import as_typed, in_its_place, under_some_system, with_greeting
from tools.toy_model.program_keys import key_questions
from tools.toy_model.written import conversations_of, read_records, split

GREETED = {"pagedchat_basics": 0.25, "written": 0.35}
"""Share of a source's conversations that also occur after a greeting."""
UNDER_SYSTEM = {"pagedchat_basics": 0.25, "written": 0.35, "dolly_15k": 0.35, "tinystories": 0.05, "jokes": 0.2}
"""Share of a source's conversations that also occur under a system prompt about form."""
AS_TYPED = 0.25
"""Share of our own conversations whose question is put as people type."""
ALONE = "written_alone"
"""Only at the very beginning of a chat, and without a greeting."""
DICTIONARY = "english_wordnet"
RARE_FACTS = {"opentriviaqa": 0.5, "dolly_15k": 1.0, DICTIONARY: 0.4}
"""Sources of rare facts, and the share of them that get an honest answer in the last phase."""
DRILLS = {
    drills.sums: 36_000,
    drills.large_sums: 400,
    drills.counting: 2_500,
    drills.calendar: 1_200,
    drills.unknown: 9_000,
    key_questions: 3_500,
}
"""How many of each."""
FOLLOW_UPS = {
    follow.remembering: 4_000,
    follow.rephrasing: 1_500,
    follow.shorter: 1_500,
    follow.more: 1_500,
}
REMEMBERED_OTHERS = 4_000
"""Talks about questions of the public sources: that what was said is looked up, not known by heart."""
STORY_TALKS = {follow.any_story: 1_300, follow.what_then: 1_500, follow.tour_talks: 250}
"""How many of each."""
COMMON_WORDS = 3_000
"""Words whose meaning the model is to know; those are the most frequent ones."""


def prepare(
    collection: Path | None, texts: Sequence[Path], out: Path, size: str, drill_share: float = 1.0, seed: int = 1
) -> Counter[str]:
    """Write `train.jsonl` and `valid.jsonl`.

    Args:
        collection: a folder with `train.jsonl[.xz]` and `valid.jsonl[.xz]`; `None` trains on our own text alone.
        texts: the folders with our own texts.
        out: where the two files go; made if it is not there.
        size: the number of parameters in words, as "15 million".
        drill_share: of the usual number of drills.
        seed: of every choice made here.

    Returns:
        Conversations to train on, by source.

    Raises:
        ValueError: a text that cannot be read, with file and line.
        FileNotFoundError: the collection lacks one of its files.
    """
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    own_train, own_valid = _own(texts, size, rng)
    public_train = [] if collection is None else list(read_jsonl(_found(collection, "train")))
    public_valid = [] if collection is None else list(read_jsonl(_found(collection, "valid")))
    common = set(_common_words((c.answer for c in own_train + public_train), COMMON_WORDS, shortest=1))
    common |= quoted_words(own_train)
    train = own_train + [_placed(conversation, common, rng) for conversation in public_train]
    train += list(_variations(own_train + public_train, rng))
    train += list(_honest(own_train + public_train, public_train, common, rng))
    train += list(_drills(own_train + public_train, rng, drill_share))
    train += list(_following(texts, size, public_train, rng, drill_share))
    rng.shuffle(train)
    out.mkdir(parents=True, exist_ok=True)
    write_jsonl(out / "train.jsonl", train)
    write_jsonl(out / "valid.jsonl", own_valid + public_valid)
    return Counter(conversation.source for conversation in train)


def _found(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.xz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder} has no {name}.jsonl and no {name}.jsonl.xz")


def _own(texts: Sequence[Path], size: str, rng: random.Random) -> tuple[list[Conversation], list[Conversation]]:
    train: list[Conversation] = []
    valid: list[Conversation] = []
    for record in (record for folder in texts for record in read_records(folder, size)):
        wordings, held_out = split(record, rng)
        made = conversations_of(record, rng, wordings)
        train += [as_typed(conversation, rng) if rng.random() < AS_TYPED else conversation for conversation in made]
        valid += list(conversations_of(record, rng, held_out))
    return train, valid


def _kind(source: str) -> str:
    return "written" if source.startswith("written_") else source


def _variations(conversations: Sequence[Conversation], rng: random.Random) -> Iterator[Conversation]:
    for conversation in conversations:
        if conversation.source == ALONE:
            continue
        kind = _kind(conversation.source)
        if rng.random() < GREETED.get(kind, 0.0) and (greeted := with_greeting(conversation, rng)):
            yield replace(greeted, source=f"greeted_{kind}")
        if rng.random() < UNDER_SYSTEM.get(kind, 0.0) and (formed := under_some_system(conversation, rng)):
            yield replace(formed, source=f"system_{kind}")


def _placed(conversation: Conversation, common: Set[str], rng: random.Random) -> Conversation:
    """A public conversation as it is trained: rare words are a source of their own."""
    if conversation.source == DICTIONARY and asks_for_rare_word(conversation, common):
        return replace(conversation, source=f"rare_{DICTIONARY}")
    return in_its_place(conversation, rng)


def _honest(
    everything: Sequence[Conversation], public: Sequence[Conversation], common: Set[str], rng: random.Random
) -> Iterator[Conversation]:
    trusted = [c for c in everything if c.source.startswith("written_") or c.source == "pagedchat_basics"]
    known = well_known_names(trusted)
    for conversation in public:
        if rng.random() >= RARE_FACTS.get(conversation.source, 0.0):
            continue
        is_word = conversation.source == DICTIONARY
        if asks_for_rare_word(conversation, common) if is_word else asks_for_rare_fact(conversation, known):
            yield honest(conversation, rng)


def _drills(conversations: Sequence[Conversation], rng: random.Random, share: float) -> Iterator[Conversation]:
    words = _common_words((c.answer for c in conversations), 1_500, longest=8)
    phrases = sorted({c.question for c in conversations if len(c.question) < 60 and "\n" not in c.question})
    phrases = rng.sample(phrases, min(2500, len(phrases)))
    for drill, count in DRILLS.items():
        yield from drill(rng, round(count * share))
    yield from drills.spelling(rng, words, round(4_000 * share))
    yield from drills.repeating(rng, phrases, round(2_000 * share))
    yield from drills.shouting(rng, phrases, round(1_200 * share))


def _following(
    texts: Sequence[Path], size: str, public: Sequence[Conversation], rng: random.Random, share: float
) -> Iterator[Conversation]:
    records = [record for folder in texts for record in read_records(folder, size)]
    pairs, told = follow.facts(records), follow.stories(records)
    for follow_up, count in FOLLOW_UPS.items():
        if pairs:
            yield from follow_up(rng, pairs, round(count * share))
    others = follow.public_facts(public)
    if others:
        yield from follow.remembering(rng, others, round(REMEMBERED_OTHERS * share))
    for story_talk, count in STORY_TALKS.items():
        if told:
            yield from story_talk(rng, told, round(count * share))


def _common_words(texts: Iterable[str], count: int, shortest: int = 3, longest: int = 99) -> list[str]:
    """The most frequent words of `shortest` to `longest` letters."""
    counts = Counter(word.strip(".,!?;:'\"()") for text in texts for word in text.lower().split())
    fitting = (w for w, _ in counts.most_common() if w.isascii() and w.isalpha() and shortest <= len(w) <= longest)
    return list(islice(fitting, count))
