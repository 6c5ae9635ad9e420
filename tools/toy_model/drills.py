"""Exercises made by program: sums, counting, spelling, repeating, letters, and names that nobody can know.

A model this small learns such things only from many examples, and only a program gets that many right. Each
function yields conversations of one source.
"""

import random
from collections.abc import Iterator

from tools.toy_model.conversations import Conversation, one_turn
from tools.toy_model.phrases import phrases

_SIGNS = {"+": "add", "-": "subtract", "x": "multiply", "/": "divide"}
_SUM_ENDS = ("", "?", " =", " = ?")


def sums(rng: random.Random, count: int) -> Iterator[Conversation]:
    """Sums with results below 200, times tables up to 12, and exact divisions."""
    for _ in range(count):
        sign = rng.choice("++--xx/")
        a, b, result = _sum(rng, sign)
        wording = rng.choice(phrases("sums", _SIGNS[sign])).format(a=a, b=b)
        if not wording.endswith((".", "?")):
            wording += rng.choice(_SUM_ENDS)
        yield one_turn("drill_sums", wording, f"{a} {sign} {b} = {result}")


def _sum(rng: random.Random, sign: str) -> tuple[int, int, int]:
    top = rng.choice((10, 20, 100, 100, 100))
    a, b = rng.randint(0, top), rng.randint(0, top)
    if sign == "+":
        return a, b, a + b
    if sign == "-":
        return max(a, b), min(a, b), max(a, b) - min(a, b)
    a, b = rng.randint(0, 12), rng.randint(1, 12)
    return (a, b, a * b) if sign == "x" else (a * b, b, a)


def large_sums(rng: random.Random, count: int) -> Iterator[Conversation]:
    """Sums that are too large: the model says so."""
    answers = (
        "That is too hard for me. I am only sure of small sums; a calculator will give you the right answer.",
        "I can't do sums that large reliably. Please use a calculator.",
        "Those numbers are too big for a small model like me. A calculator is the right tool.",
    )
    for _ in range(count):
        a, b = rng.randint(1_000, 999_999), rng.randint(100, 99_999)
        sign = rng.choice("+-x/")
        yield one_turn(
            "drill_sums", rng.choice(phrases("sums", _SIGNS[sign])).format(a=a, b=b), rng.choice(answers)
        )


def counting(rng: random.Random, count: int) -> Iterator[Conversation]:
    """Counting up, down and by steps, and what comes before and after a number."""
    for _ in range(count):
        yield one_turn("drill_counting", *rng.choice((_count_up, _count_down, _count_by, _neighbour))(rng))


def _written(rng: random.Random, number: int) -> str:
    return phrases("words", "numbers")[number] if number <= 20 and rng.random() < 0.5 else str(number)


def _listed(numbers: range) -> str:
    return ", ".join(map(str, numbers))


def _count_up(rng: random.Random) -> tuple[str, str]:
    first, last = rng.choice((1, 1, 1, rng.randint(0, 10))), rng.choice((3, 5, 6, 7, 8, 10, 10, 12, 15, 20))
    last = max(last, first + 2)
    end = _written(rng, last)
    start = _written(rng, first)
    plain = (
        "Count to {b}.",
        "count to {b}",
        "Can you count to {b}?",
        "Count up to {b}, please.",
        "please count to {b}",
    )
    ranged = ("Count from {a} to {b}.", "count from {a} to {b}", "Can you count from {a} up to {b}?")
    wording = rng.choice(plain if first == 1 and rng.random() < 0.7 else ranged).format(a=start, b=end)
    return wording, _listed(range(first, last + 1))


def _count_down(rng: random.Random) -> tuple[str, str]:
    first, last = rng.choice((3, 5, 8, 10, 10, 10, 12, 15, 20)), rng.choice((0, 1, 1))
    start, end = _written(rng, first), _written(rng, last)
    wordings = (
        "Count from {a} down to {b}.", "Count down from {a} to {b}.", "count backwards from {a} to {b}",
        "Can you count down from {a} to {b}?", "count from {a} to {b}",
    )  # fmt: skip
    return rng.choice(wordings).format(a=start, b=end), _listed(range(first, last - 1, -1))


def _count_by(rng: random.Random) -> tuple[str, str]:
    step = rng.choice((2, 2, 3, 5, 10))
    last = step * rng.randint(4, 10)
    name = {2: "twos", 3: "threes", 5: "fives", 10: "tens"}[step]
    wording = rng.choice(("Count to {b} by {s}.", "count by {s} to {b}", "Count in {s} up to {b}."))
    return wording.format(b=last, s=name), _listed(range(step, last + 1, step))


def _neighbour(rng: random.Random) -> tuple[str, str]:
    number = rng.randint(1, 99)
    if rng.random() < 0.5:
        wording = rng.choice(("What number comes after {n}?", "what comes after {n}", "Which number follows {n}?"))
        return wording.format(n=number), f"After {number} comes {number + 1}."
    wording = rng.choice(("What number comes before {n}?", "what comes before {n}"))
    return wording.format(n=number), f"Before {number} comes {number - 1}."


def calendar(rng: random.Random, count: int) -> Iterator[Conversation]:
    """Days and months, one after another, and letters of the alphabet."""
    letters = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    kinds = (
        ("day", phrases("words", "days"), True),
        ("month", phrases("words", "months"), True),
        ("letter", letters, False),
    )
    for _ in range(count):
        kind, names, wraps = rng.choice(kinds)
        place = rng.randrange(0 if wraps else 1, len(names) if wraps else len(names) - 1)
        name, after, before = names[place], names[(place + 1) % len(names)], names[place - 1]
        if rng.random() < 0.5:
            wording = rng.choice(
                ("What {k} comes after {n}?", "which {k} comes after {n}", "What is the {k} after {n}?")
            )
            yield one_turn("drill_calendar", wording.format(k=kind, n=name), f"After {name} comes {after}.")
        else:
            wording = rng.choice(("What {k} comes before {n}?", "which {k} is before {n}"))
            yield one_turn("drill_calendar", wording.format(k=kind, n=name), f"Before {name} comes {before}.")


def spelling(rng: random.Random, words: list[str], count: int) -> Iterator[Conversation]:
    """Letters of common words, their number, first and last."""
    for _ in range(count):
        word = rng.choice(words)
        spelled = "-".join(word)
        kind = rng.randrange(4)
        if kind == 0:
            wording = rng.choice(
                ("Spell {w}.", "How do you spell {w}?", 'Can you spell the word "{w}"?', "spell {w}")
            )
            yield one_turn("drill_spelling", wording.format(w=word), f"{spelled}.")
        elif kind == 1:
            wording = rng.choice(('How many letters are in "{w}"?', "how many letters does {w} have"))
            yield one_turn("drill_spelling", wording.format(w=word), f"{spelled}: that is {len(word)} letters.")
        elif kind == 2:
            wording = rng.choice(('What is the first letter of "{w}"?', "which letter does {w} start with"))
            yield one_turn("drill_spelling", wording.format(w=word), f'"{word}" begins with {word[0]}.')
        else:
            wording = rng.choice(('What is the last letter of "{w}"?', "which letter does {w} end with"))
            yield one_turn("drill_spelling", wording.format(w=word), f'"{word}" ends with {word[-1]}.')


def repeating(rng: random.Random, phrases: list[str], count: int) -> Iterator[Conversation]:
    """Say again what the user gave: the smallest lesson in reading the prompt."""
    wordings = (
        "Repeat after me: {p}", "Say: {p}", 'Please say "{p}"', "repeat: {p}", 'Write "{p}".', "Copy this: {p}",
    )  # fmt: skip
    for _ in range(count):
        phrase = rng.choice(phrases)
        yield one_turn("drill_repeating", rng.choice(wordings).format(p=phrase), phrase)


def shouting(rng: random.Random, phrases: list[str], count: int) -> Iterator[Conversation]:
    """The user's own words in capital or small letters."""
    for _ in range(count):
        phrase = rng.choice(phrases)
        if rng.random() < 0.6:
            wording = rng.choice(("Write this in capital letters: {p}", "uppercase: {p}", "Put in capitals: {p}"))
            yield one_turn("drill_repeating", wording.format(p=phrase), phrase.upper())
        else:
            wording = rng.choice(("Write this in small letters: {p}", "lowercase: {p}"))
            yield one_turn("drill_repeating", wording.format(p=phrase.upper()), phrase.lower())


def made_up_word(rng: random.Random) -> str:
    """A word of no language that can be spoken, as "flimmerock"."""
    syllables = rng.choice((1, 1, 2))
    endings = phrases("made_up", rng.choice(("endings", "real_endings")))
    body = "".join(
        "".join(rng.choice(phrases("made_up", part)) for part in ("onsets", "vowels", "codas"))
        for _ in range(syllables)
    )
    return body + rng.choice(endings)


def unknown(rng: random.Random, count: int) -> Iterator[Conversation]:
    """Questions that nobody can answer, for their word, place or person does not exist; and honest answers."""
    for _ in range(count):
        word = made_up_word(rng)
        kind = rng.choice(("word", "word", "place", "person", "event"))
        thing = word if kind == "word" else word.capitalize()
        if kind == "person":
            thing = f"{made_up_word(rng).capitalize()} {thing}"
        question = rng.choice(phrases("unknown_questions", kind)).format(x=thing, year=rng.randint(1800, 2030))
        if rng.random() < 0.35:
            question = question.rstrip("?.").lower()
            thing = thing.lower()
        article = "an" if thing[0] in "aeiou" else "a"
        answers = phrases("unknown_answers", kind) + phrases("unknown_answers", "any")
        yield one_turn("drill_unknown", question.replace("a(n)", article), rng.choice(answers).format(x=thing))
