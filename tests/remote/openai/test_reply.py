"""What a stream's pieces come to: exactly the text that was sent, whatever else they have."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pagedchat.remote.openai.reply import ReplyReader


def read(*pieces):
    reader = ReplyReader()
    return reader, "".join(map(reader.take, pieces)) + reader.end()


def said(text, **more):
    return {"choices": [{"index": 0, "delta": {"content": text}, **more}]}


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=8), max_size=20), st.data())
def test_the_text_is_what_was_sent_whatever_the_pieces(texts, data):
    whole = "".join(texts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    units = json.loads(json.dumps("".join(texts)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(units)), max_size=6)))
    pieces = [units[a:b] for a, b in zip([0, *cuts], [*cuts, len(units)], strict=True)]
    _, text = read(*map(said, pieces))
    assert text == whole
    text.encode()  # it can be written down


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["choices", "delta", "content", "usage", "text", "finish_reason",
                                       "reasoning_content", "completion_tokens", "timings"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(JSON, max_size=4))
def test_no_piece_however_wrong_is_more_than_text(pieces):
    reader, text = read(*pieces)
    text.encode()
    assert reader.num_tokens >= 0
    assert reader.num_cached_tokens <= reader.num_prompt_tokens


def test_halves_of_a_character_are_joined_and_a_lone_one_is_marked():
    assert read(said("a\ud83c"), said("\udf0a!"))[1] == "a🌊!"
    assert read(said("\udf0a"), said("b\ud83c"))[1] == "�b�"


def test_thoughts_stand_before_the_reply_as_models_write_them():
    thought = {"choices": [{"delta": {"reasoning_content": "One and "}}]}
    newer = {"choices": [{"delta": {"reasoning": "one?"}}]}
    assert read(thought, newer, said("Two."))[1] == "<think>\nOne and one?\n</think>\n\nTwo."
    assert read(thought)[1] == "<think>\nOne and \n</think>"


def test_tokens_are_those_that_the_server_counts_and_else_pieces():
    assert read(said("a"), said("b"))[0].num_tokens == 2
    usage = {"prompt_tokens": 10, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 8}}
    reader, _ = read(said("a"), {"choices": [], "usage": usage})
    assert (reader.num_tokens, reader.num_prompt_tokens, reader.num_cached_tokens) == (7, 10, 8)
    reader, _ = read(said("a", finish_reason="stop") | {"usage": {"prompt_tokens": 9}, "timings": {"cache_n": 4}})
    assert (reader.num_cached_tokens, reader.reason) == (4, "stop")


def test_how_it_ended():
    for told, reason in {
        "length": "length",
        "tool_calls": "stop",
        "content_filter": "stop",
        "abort": "abort",
    }.items():
        assert read(said("", finish_reason=told))[0].reason == reason
    assert read(said("a"))[0].reason is None
