"""Drafts as slots: where they were written, which hold, and that their counts are the engine's."""

from pagedchat import events as ev
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.view.engine_view import EngineView
from pagedchat.view.groups.rows import Context
from pagedchat.view.owners import owner_number
from pagedchat.view.speculation.rows import draft_rows
from tests.fakes import FakeModelRunner
from tests.service.fake_engine import ready_info

BLOCK_SIZE = 8


def periodic(length: int) -> list[int]:
    return [10 + i % 5 for i in range(length)]


def next_token(token_ids: list[int]) -> int:
    """Goes on with the period, but every eleventh token is another one."""
    position = len(token_ids)
    return 99 if position % 11 == 0 else 10 + position % 5


def drafted_engine(num_tokens: int = 40) -> tuple[EngineView, list[ev.StepReport]]:
    limits = EngineLimits(num_blocks=64, block_size=BLOCK_SIZE, model_len=256)
    core = EngineCore(limits, FakeModelRunner(next_token, BLOCK_SIZE))
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, speculate="lookup")
    core.extend(core.open(1), periodic(20), params)
    view = EngineView()
    view.apply(ready_info(block_size=BLOCK_SIZE, num_blocks=64))
    reports = []
    while core.has_work:
        reports.append(core.step())
        view.apply(ev.Steps([reports[-1]]))
    return view, reports


def rows(view: EngineView, width: int = 100, *, ascii_only: bool = False) -> list[str]:
    assert view.mirror is not None
    context = Context(
        view.mirror, view.token_texts, view.name, lambda seq_id: owner_number(seq_id, ""), width, ascii_only
    )
    last = view.mirror.last
    found = draft_rows(list(view.shown.drafts.steps), last.counters if last else None, context)
    return ["".join(text for text, _ in row) for row in found]


def test_slots_are_counted_as_the_engine_counts_them() -> None:
    view, reports = drafted_engine()
    steps, counters = view.shown.drafts.steps, reports[-1].counters
    assert counters.draft_tokens > 0
    assert sum(step.num_accepted for step in steps) == counters.accepted_tokens
    assert sum(step.num_accepted + step.num_rejected for step in steps) == counters.draft_tokens
    assert len(steps) == counters.drafts
    rejected = counters.draft_tokens - counters.accepted_tokens
    assert rows(view)[0].startswith(
        f"{counters.draft_tokens} drafted · {counters.accepted_tokens} accepted · {rejected} rejected"
    )


def test_each_slot_is_drawn_in_its_block() -> None:
    view, _ = drafted_engine()
    step = view.shown.drafts.steps[-1]
    line = next(line for line in rows(view)[2:] if line.startswith(f"{step.step:>5} "))
    first = step.position % BLOCK_SIZE
    drawn = "".join(part for part in line.split() if set(part) <= set("▓•+×░"))
    expected = "▓" * first + "•" + "+" * step.num_accepted + "×" * step.num_rejected
    assert drawn.startswith(expected)
    assert len(drawn) % BLOCK_SIZE == 0
    assert f" {step.blocks[0]:03d} " in line


def test_without_drafts_it_is_said_how_to_have_them() -> None:
    view = EngineView()
    view.apply(ready_info())
    assert "/set speculate lookup" in rows(view)[0]


def test_a_copy_of_the_state_goes_its_own_way() -> None:
    view, _ = drafted_engine()
    assert view.live is not None
    twin = view.live.copy()
    view.live.drafts.steps.clear()
    assert twin.drafts.steps


def test_lines_are_as_wide_as_there_is_room_and_ascii_is_ascii() -> None:
    view, _ = drafted_engine()
    view.apply(ev.TokenTexts([*range(10, 15), 99], [b" a", b"\xff", b"\x1b[2J", b"d", b"e", b"!"]))
    for width in (10, 30, 56, 120):
        assert all(len(line) <= width for line in rows(view, width))
    assert all(line.replace("\ufffd", "").isascii() for line in rows(view, 56, ascii_only=True))
    assert "\x1b" not in "".join(rows(view, 56))
