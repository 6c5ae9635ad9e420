"""What a request may say of single tokens and texts: bounds, and a sentence for what is outside of them.

Each check gives the value in Python's own types, or raises InvalidValueError, which names the parameter. Which
tokens a model has, it does not know.
"""

from pagedchat.bounds import INT32_MAX, Number, Whole, as_list, as_whole, check_texts, refused, shown
from pagedchat.errors import InvalidValueError

MAX_BAD_WORDS = 256
"""Of one request."""
MOST_BIAS = 100.0
"""That is added to a logit, or taken from it."""
MAX_STOP_CHARACTERS = 65_536
"""Of all stop strings of one request together, and of all bad words."""


def check_words(name: str, values: object) -> list[str]:
    """Texts that are not generated."""
    words = check_texts(name, values)
    check_size("texts in bad_words", len(words), MAX_BAD_WORDS)
    check_size("characters in bad_words", sum(map(len, words)), MAX_STOP_CHARACTERS)
    return words


def check_word_ids(name: str, values: object) -> list[list[int]]:
    """The same as tokens."""
    words = as_list(values)
    if words is None:
        raise refused(name, values, "lists of token ids")
    check_size("lists in bad_words_ids", len(words), 2 * MAX_BAD_WORDS)
    return [check_tokens(name, word) for word in words]


def check_tokens(name: str, values: object) -> list[int]:
    """Token ids, one at least."""
    tokens = Whole(0, INT32_MAX).check_all(name, values)
    if not tokens:
        raise refused(name, values, "at least one token id")
    return tokens


def check_biases(name: str, values: object) -> dict[int, float]:
    """What is added to the logits of tokens, whose ids may be texts of digits, as JSON has them."""
    if not isinstance(values, dict):
        raise refused(name, values, "a dict of token ids and numbers")
    tokens = [int(key) if isinstance(key, str) and key.isdecimal() else key for key in values]
    whole, number = Whole(0, INT32_MAX), Number(-MOST_BIAS, MOST_BIAS)
    return {
        whole.check(f"A token id of {name}", token): number.check(f"{name} of token {shown(token)}", bias)
        for token, bias in zip(tokens, values.values(), strict=True)
    }


def check_truncation(name: str, value: object) -> int:
    """How many tokens of a prompt are taken."""
    if as_whole(value) == 0:
        raise refused(name, value, "at least 1, or -1 for as many as there is room for")
    return Whole(-1, INT32_MAX, "but 0").check(name, value)


def check_size(what: str, count: int, most: int) -> None:
    """Refuse too many of something."""
    if count > most:
        raise InvalidValueError(f"There are {count:,} {what}.", f"One request may have at most {most:,}.")
