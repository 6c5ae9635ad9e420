"""Conversations as trees: nothing that was said is lost, and every chat is a path."""

from hypothesis import given
from hypothesis import strategies as st

from pagedchat.chat.session import ChatSession
from pagedchat.chat.tree import ROOT, ConversationTree, shared_length
from pagedchat.chat.turns import Entry, Turn
from pagedchat.view.chats.branches import branch_rows


def said(chat: ChatSession, prompt: str, reply: str) -> None:
    chat.ask(prompt, 1)
    answered(chat, reply)


def answered(chat: ChatSession, reply: str) -> None:
    chat.start()
    chat.append(reply, 1)
    chat.finish("stop")


def texts(chat: ChatSession) -> list[str]:
    return [entry.turn.text for entry in chat.entries]


def test_a_reply_that_is_asked_for_again_is_a_sibling_that_can_be_gone_back_to():
    chat = ChatSession(1)
    said(chat, "a", "1")
    said(chat, "b", "2")
    assert chat.branch == (1, 1)
    chat.regenerate(2)
    answered(chat, "3")
    assert texts(chat) == ["a", "1", "b", "3"]
    assert chat.branch == (2, 2)
    assert chat.sibling(1) is None
    chat.go_through(chat.sibling(-1))
    assert texts(chat) == ["a", "1", "b", "2"]
    assert chat.branch == (1, 2)


def test_going_through_a_branch_ends_where_it_was_left():
    chat = ChatSession(1)
    said(chat, "a", "1")
    said(chat, "b", "2")
    said(chat, "c", "3")
    long = list(chat.entries)
    chat.go_back(2)
    said(chat, "other b", "4")
    assert chat.branch == (2, 2)
    chat.go_through(chat.sibling(-1))
    assert chat.entries == long
    chat.go_to(long[1].turn_id)  # exactly there
    assert texts(chat) == ["a", "1"]
    chat.go_to(long[2].turn_id)  # a prompt: its reply
    assert texts(chat) == ["a", "1", "b", "2"]


def test_a_prompt_that_was_taken_back_is_nobodys_sibling():
    chat = ChatSession(1)
    said(chat, "a", "1")
    chat.ask("b", 2)
    chat.stop()
    assert chat.take_returned() == "b"
    said(chat, "c", "2")
    assert chat.branch == (1, 1)
    assert [row.entry.turn.text for row in branch_rows(chat, [chat])] == ["a", "1", "c", "2"]


def test_while_a_reply_is_written_nobody_goes_anywhere():
    chat = ChatSession(1)
    said(chat, "a", "1")
    chat.regenerate(2)
    first = chat.tree.behind(chat.entries[0].turn_id)[0].turn_id
    assert not chat.go_to(first)
    assert not chat.go_back(0)
    answered(chat, "2")
    assert chat.go_to(first)


def test_forks_have_one_tree_and_stand_in_it_by_themselves():
    chat = ChatSession(1)
    said(chat, "a", "1")
    said(chat, "b", "2")
    fork = chat.fork_at(2, 2)
    assert fork.origin.num_prompts == 1
    said(fork, "c", "3")
    assert texts(chat) == ["a", "1", "b", "2"]
    rows = branch_rows(fork, [chat, fork])
    assert [(row.guide, row.entry.turn.text, row.on_path, row.chats) for row in rows] == [
        ("", "a", True, ()),
        ("", "1", True, ()),
        ("├ ", "b", False, ()),
        ("│ ", "2", False, (chat,)),
        ("└ ", "c", True, ()),
        ("  ", "3", True, (fork,)),
    ]
    chat.go_through(chat.sibling(1))
    assert texts(chat) == texts(fork)


def test_parts_of_a_conversation_come_together():
    chat = ChatSession(1)
    said(chat, "a", "1")
    said(chat, "b", "2")
    other = ConversationTree()
    beside = [Entry(Turn("user", "c")), Entry(Turn("assistant", "3"))]
    other.add_path([*chat.entries[:2], *beside])
    chat.tree.take_over(other)
    assert len(chat.tree) == 6
    assert chat.tree.path_to(beside[1].turn_id) == [*chat.entries[:2], *beside]
    assert shared_length(chat.entries, chat.tree.path_to(beside[1].turn_id)) == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40))
def test_whatever_is_done_every_turn_stays_and_every_chat_is_a_path(doings):
    chats = [ChatSession(1)]
    spoken: set[str] = set()
    for number, (what, which) in enumerate(doings):
        chat = chats[which % len(chats)]
        if what <= 1:
            said(chat, f"p{number}", f"r{number}")
            spoken |= {f"p{number}", f"r{number}"}
        elif what == 2 and chat.regenerate(number):
            answered(chat, f"r{number}")
            spoken.add(f"r{number}")
        elif what == 3 and len(chats) < 4:
            chats.append(chat.fork_at(len(chats) + 1, 2 * (which % (chat.num_prompts + 1))))
        elif what == 4:
            chat.go_back(2 * (which % (chat.num_prompts + 1)))
        elif what == 5 and chat.sibling(-1) is not None:
            chat.go_through(chat.sibling(-1))
        for one in chats:
            assert [entry.turn.role for entry in one.entries] == ["user", "assistant"] * one.num_prompts
            if one.entries:
                assert one.tree.path_to(one.entries[-1].turn_id) == one.entries
    rows = branch_rows(chats[0], chats)
    assert {row.entry.turn.text for row in rows} == spoken
    assert sum(len(row.chats) for row in rows) == sum(bool(chat.entries) for chat in chats)
    everything = list(chats[0].tree.all_turns())
    assert len({entry.turn_id for entry, _ in everything}) == len(everything) == len(chats[0].tree)
    known = {ROOT}
    for entry, parent in everything:
        assert parent in known
        known.add(entry.turn_id)


def test_what_a_reply_has_cost_says_how_long_a_token_is():
    chat = ChatSession(1)
    chat.learn_size(10)
    before = chat.tokens_per_character
    said(chat, "abcd", "efgh")
    chat.learn_size(4)
    assert (before, chat.tokens_per_character) == (0.35, 0.5)


def test_a_summary_s_request_is_another_chat_s_until_there_is_an_answer():
    chat = ChatSession(1)
    chat.summed_up = [Turn("user", "long"), Turn("assistant", "talk")]
    chat.ask("Sum it up.", 1)
    assert [turn.text for turn in chat.turns] == ["long", "talk", "Sum it up."]
    answered(chat, "short")
    chat.learn_size(900)
    assert chat.tokens_per_character == 0.35
    assert [turn.text for turn in chat.turns] == ["Sum it up.", "short"]


def test_left_out_turns_are_sent_again_where_another_beginning_is_stood_on():
    chat = ChatSession(1)
    said(chat, "a", "1")
    said(chat, "b", "2")
    chat.go_back(0)
    said(chat, "c", "3")
    said(chat, "d", "4")
    chat.leave_out(2)
    assert [turn.text for turn in chat.turns] == ["d", "4"]
    chat.go_through(chat.sibling(-1) or 0)
    assert [turn.text for turn in chat.turns] == ["a", "1", "b", "2"]
    assert ChatSession(2).sibling(1) is None


def test_a_parent_that_is_nowhere_brings_nothing():
    tree, other = ConversationTree(), ConversationTree()
    turn = Entry(Turn("user", "a"))
    other.add(turn, ROOT)
    other.add(Entry(Turn("assistant", "1")), turn.turn_id)
    tree.take_over(other)
    assert turn.turn_id in tree
    assert [one.turn.text for one in tree.path_to_reply(turn.turn_id)] == ["a", "1"]
    prompt = Entry(Turn("user", "b"))
    tree.add(prompt, ROOT)
    assert tree.path_to_reply(prompt.turn_id) == []
    assert tree.path_through(prompt.turn_id) == []
