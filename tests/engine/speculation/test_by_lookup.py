"""Prompt lookup goes on behind a change in a text that it follows, and lets go of it where it was left for good."""

from pagedchat.config import SpeculationConfig
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.by_lookup import ByLookup
from pagedchat.engine.speculation.settle import accepted
from pagedchat.engine.speculation.worth import Worth

TEXT = list(range(100, 160))
NEW = 999


class Chat:
    """A reply that is dictated, drafted for step by step."""

    def __init__(self, reply: list[int], worth: Worth | None = None) -> None:
        self.by_lookup = ByLookup(SpeculationConfig(num_speculative_tokens=15))
        self.seq = Sequence(1)
        self.seq.token_ids = [*TEXT, 7]
        self.reply, self.worth = reply, worth

    @property
    def num_done(self) -> int:
        return len(self.seq.token_ids) - len(TEXT) - 1

    def step(self) -> list[int]:
        """What was drafted for it."""
        draft = self.by_lookup.plan(self.seq, 15, 1, self.worth).tokens
        coming = self.reply[self.num_done :]
        tokens = accepted(draft, coming[: len(draft) + 1])
        self.seq.token_ids += tokens
        if draft:
            self.by_lookup.learn(self.seq, len(draft), len(tokens) - 1)
        return draft

    def drafts(self) -> list[list[int]]:
        """Of all steps."""
        found = []
        while self.num_done < len(self.reply) - 16:
            found.append(self.step())
        return found


def test_behind_a_token_that_was_changed_the_draft_goes_on():
    drafts = Chat([*TEXT[:20], NEW, *TEXT[21:]]).drafts()
    behind = next(draft for draft in drafts if draft and draft[0] == TEXT[21])
    assert behind == TEXT[21:36]
    assert [] not in drafts[2:], "from the first agreement on there is no step without"


def test_two_changes_in_a_row_are_borne_and_a_text_that_was_left_is_not_gone_on_with():
    drafts = Chat([*TEXT[:20], NEW, NEW + 1, *TEXT[22:]]).drafts()
    assert TEXT[22:37] in drafts
    chat = Chat([*TEXT[:20], *range(500, 560)])
    drafts = chat.drafts()
    wrong = [draft for draft in drafts if draft and draft[0] > TEXT[20]]
    assert len(wrong) <= 2


def test_where_drafts_have_to_pay_the_first_one_wants_a_long_agreement():
    assert [bool(draft) for draft in Chat(TEXT).drafts()[:4]] == [False, False, True, True]
    worth = Worth(by_rows=True)
    assert [bool(draft) for draft in Chat(TEXT, worth).drafts()[:5]] == [False, False, False, False, True]


def test_one_wrong_token_among_many_right_ones_does_not_make_drafts_unlikely():
    chat = Chat([*TEXT[:40], NEW, *TEXT[41:]])
    chat.drafts()
    drafting = chat.by_lookup._books.of(chat.seq)
    assert drafting is not None
    assert drafting.chance > 0.85


def test_a_prompt_that_was_taken_in_beforehand_is_drafted_from_like_any_other():
    chat, other = Chat(TEXT), Chat(TEXT)
    chat.by_lookup.take_in(chat.seq)
    assert chat.drafts() == other.drafts()


def test_what_a_draft_has_brought_is_indexed_beside_the_next_step_or_else_before_the_one_after():
    for beside in (True, False):
        chat, late = Chat([*TEXT[:50], NEW]), 0
        while chat.num_done < 32:
            chat.step()
            late += chat.by_lookup.is_late
            if beside:
                chat.by_lookup.index_late()
                assert not chat.by_lookup.is_late
        drafting = chat.by_lookup._books.of(chat.seq)
        assert drafting is not None
        assert late > 0
        # All but the last token and, where it waits for its turn, what the last step has brought.
        assert drafting.lookup.num_behind(chat.seq.token_ids) <= drafting.num_brought * (1 if beside else 2)


def test_where_nothing_agrees_nobody_looks_until_enough_could():
    """Four tokens have to agree for a first draft that has to pay, and one more can with each token."""
    chat, looked_at = Chat([*range(500, 520)], Worth(by_rows=True)), []
    plan = chat.by_lookup.plan
    for _ in range(9):
        drafting = chat.by_lookup._books.of(chat.seq)
        before = 0 if drafting is None else drafting.resume_at
        plan(chat.seq, 15, 1, chat.worth)
        drafting = chat.by_lookup._books.of(chat.seq)
        assert drafting is not None
        looked_at.append(drafting.resume_at != before)
        chat.seq.token_ids.append(chat.reply[chat.num_done])
    assert looked_at == [True, False, False] * 3
