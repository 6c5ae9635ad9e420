"""Chats of ChatGPT and of llama.cpp's web UI: the branch that was seen last."""

from pagedchat.chat.formats.other_json import chats_of


def node(parent, children, role=None, parts=None, **more):
    message = role and {"author": {"role": role}, "content": {"content_type": "text", "parts": parts}, **more}
    return {"parent": parent, "children": children, "message": message}


CHATGPT = {
    "title": "Boats",
    "current_node": "e",
    "mapping": {
        "root": node(None, ["s"]),
        "s": node("root", ["a"], "system", [""], metadata={"is_visually_hidden_from_conversation": True}),
        "a": node("s", ["b", "x"], "user", ["Tell me of boats."]),
        "x": node("a", [], "assistant", ["The branch that nobody looks at."]),
        "b": node("a", ["t"], "assistant", ["They float."]),
        "t": node("b", ["c"], "tool", ["search results"]),
        "c": node("t", ["d"], "assistant", ["Most of them."]),
        "d": node("c", ["e"], "user", [{"content_type": "image_asset_pointer"}, "And this?"]),
        "e": node("d", [], "assistant", ["A ship."]),
    },
}
LLAMA = {
    "conv": {"id": "1", "name": "Boats", "currNode": "m4"},
    "messages": [
        {"id": "r", "type": "root", "role": "system", "content": "", "parent": None, "children": ["m1"]},
        {"id": "m1", "type": "text", "role": "user", "content": "Tell me of boats.", "parent": "r"},
        {"id": "m2", "type": "text", "role": "assistant", "content": "Another branch.", "parent": "m1"},
        {"id": "m4", "type": "text", "role": "assistant", "content": "They float.", "parent": "m1"},
    ],
}


def texts(chat):
    return [(entry.turn.role, entry.turn.text) for entry in chat.entries]


def test_the_branch_of_chatgpt_that_was_seen_last_is_read():
    [chat] = chats_of([CHATGPT])
    assert (chat.title, chat.system, chat.num_left_out) == ("Boats", None, 2)
    assert texts(chat) == [
        ("user", "Tell me of boats."), ("assistant", "They float.\n\nMost of them."),
        ("user", "And this?"), ("assistant", "A ship."),
    ]  # fmt: skip


def test_without_a_current_node_the_last_leaf_is_the_end():
    [chat] = chats_of({**CHATGPT, "current_node": "gone"})
    assert texts(chat)[-1] == ("assistant", "A ship.")


def test_a_circle_of_parents_is_walked_once():
    mapping = {"a": node("b", ["b"], "user", ["one"]), "b": node("a", ["a"], "assistant", ["two"])}
    [chat] = chats_of([{"mapping": mapping, "current_node": "b"}])
    assert texts(chat) == [("user", "one"), ("assistant", "two")]


def test_a_very_long_branch_is_read():
    mapping = {str(i): node(str(i - 1) if i else None, [str(i + 1)], ("user", "assistant")[i % 2], [f"{i}"])
               for i in range(20_000)}  # fmt: skip
    [chat] = chats_of([{"mapping": mapping, "current_node": "19999"}])
    assert len(chat.entries) == 20_000


def test_the_branch_of_llama_cpp_that_was_seen_last_is_read():
    for value in (LLAMA, [LLAMA]):
        [chat] = chats_of(value)
        assert chat.title == "Boats"
        assert texts(chat) == [("user", "Tell me of boats."), ("assistant", "They float.")]


def test_messages_without_parents_are_read_in_their_order():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
                {"role": "user", "content": "?"}]  # fmt: skip
    for value in ({"messages": messages}, messages):
        [chat] = chats_of(value)
        assert (chat.system, chat.unanswered) == ("Be brief.", "?")
        assert texts(chat) == [("user", "Hi"), ("assistant", "Hello")]


def test_what_is_no_chat_is_none():
    for value in (
        None,
        3,
        "x",
        [],
        {},
        [[]],
        {"mapping": {}},
        {"messages": [3]},
        {"messages": {}},
        [{"mapping": 3}],
    ):
        assert chats_of(value) == []


def test_what_hides_in_a_title_is_seen():
    [chat] = chats_of([{**CHATGPT, "title": "Boats \x1b[31m\u202eevil\n\x00"}])
    assert chat.title == "Boats \\x1b[31m\\u202eevil \\x00"
