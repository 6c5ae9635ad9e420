"""Where the turns of a chat stand in the text of its sequence."""

from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pagedchat import bundled
from pagedchat.chat.template import ChatTemplate
from pagedchat.chat.turns import Turn
from pagedchat.view.chats.turn_spans import find_turns
from pagedchat.view.sentences.token_text import sequence_text

ROLES = ("user", "assistant")


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))


def encoded(text: str) -> tuple[list[int], dict[int, bytes]]:
    """Tokens of the model in the box, and their bytes by its byte-level alphabet."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in printable)
    alphabet |= {chr(256 + index): byte for index, byte in enumerate(rest)}
    ids = tokenizer().encode(text, add_special_tokens=False).ids
    return ids, {token: bytes(alphabet[char] for char in tokenizer().id_to_token(token)) for token in ids}


def places(turns: list[Turn], text: str, *, labelled: bool) -> list[int | None]:
    return find_turns(turns, sequence_text(*encoded(text)), labelled=labelled)


def test_short_turns_are_not_mistaken_for_the_templates_words() -> None:
    turns = [Turn("user", "a"), Turn("assistant", "User"), Turn("user", "s")]
    text = ChatTemplate().render(turns)
    assert places(turns, text, labelled=True) == [6, 19, 30]
    marked = "<|user|>a</s><|assistant|>User</s><|user|>s</s><|assistant|>"
    assert places(turns, marked, labelled=False) == [8, 26, 42]


def test_what_may_stand_in_two_places_is_not_found() -> None:
    turns = [Turn("user", "yes"), Turn("assistant", "no")]
    assert places(turns, "<|user|>yes yes</s><|assistant|>no", labelled=False) == [None, 32]


def test_a_turn_that_the_sequence_does_not_hold_yet_is_not_found() -> None:
    turns = [Turn("user", "one boat"), Turn("assistant", "two boats"), Turn("user", "three boats")]
    assert places(turns, "<|user|>one boat</s><|assistant|>two boats", labelled=False) == [8, 33, None]


def test_raw_text_has_no_labels() -> None:
    turns = [Turn("user", "The boat left"), Turn("assistant", " before dawn.")]
    assert places(turns, "The boat left before dawn.", labelled=True) == [0, 13]


words = st.lists(st.sampled_from(["a", "User", "User:", "\n", " ", "Assistant:", "boat", "日", "s"]), min_size=1)


@given(st.lists(words.map("".join).filter(str.strip), min_size=1, max_size=5))
@example(["User: a", "a"])
def test_no_turn_is_ever_found_in_a_wrong_place(texts: list[str]) -> None:
    turns = [Turn(ROLES[index % 2], text) for index, text in enumerate(texts)]
    for template in (ChatTemplate(), None):
        parts, true = [], []
        for turn in turns:
            parts.append(f"<|{turn.role}|>" if template is None else f"{turn.role.title()}: ")
            true.append(sum(map(len, parts)))
            parts += [turn.text, "</s>" if template is None else "\n"]
        found = places(turns, "".join(parts), labelled=template is not None)
        assert all(place is None or place == right for place, right in zip(found, true, strict=True))
