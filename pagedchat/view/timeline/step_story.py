"""All that is known of one step in words, a fact a line, under headings. Pure."""

from collections.abc import Iterable

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.step_batch import BatchEntry
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.ranks import rank_lines
from pagedchat.view.sentences.token_text import quote
from pagedchat.view.sentences.words import count, fit

LABEL_CELLS = 14
TOKEN_CELLS = 40
"""Of the text that a sequence was given in the step."""
HEADING_CELLS = 9


def step_story(view: EngineView, report: ev.StepReport) -> list[str]:
    """Batch, moves, queues, pool and events of the step."""
    return [
        *_under(
            "batch", [_entry(view, entry) for entry in report.batch] or ["nobody: only verbs, or a preemption"]
        ),
        *_under("moved", list(_moves(report.events)) or ["no block was copied or swapped"]),
        *_under("queues", [_queues(report.queues)]),
        *_under("pool", _pool(report.pool)),
        *_under("ranks", rank_lines(view.shown.info, report)),
        *_under("events", _events(view, report.step)),
    ]


def batch_words(report: ev.StepReport) -> str:
    """`step 8812 · batch 2 · 2 tok`."""
    tokens = sum(entry.num_prefill + entry.num_decode for entry in report.batch)
    return f"step {report.step} · batch {len(report.batch)} · {tokens} tok"


def find_report(view: EngineView, step: int) -> ev.StepReport | None:
    """The report of a step that is still kept: the one with a batch, where verbs came after it."""
    found = [report for report in view.history if report.step == step]
    return next((report for report in found if report.batch), found[0] if found else None)


def _under(heading: str, lines: list[str]) -> list[str]:
    return [f"{heading if index == 0 else '':<{HEADING_CELLS}}{line}" for index, line in enumerate(lines)]


def _entry(view: EngineView, entry: BatchEntry) -> str:
    """`1 tale         decode    1 → " sea"`."""
    work = "prefill" if entry.num_prefill else "decode"
    tokens = entry.num_prefill + entry.num_decode
    sampled = quote(entry.token_ids, view.token_texts, TOKEN_CELLS) if entry.token_ids else "nothing sampled yet"
    line = f"{fit(view.name(entry.seq_id), LABEL_CELLS)} {work:<7} {tokens:>4} → {sampled}"
    rejected = entry.num_drafted - entry.num_accepted
    drafted = f" · {entry.num_drafted} drafted, {entry.num_accepted} accepted, {rejected} rejected"
    return line + drafted * bool(entry.num_drafted)


def _moves(happened: Iterable[ce.CacheEvent]) -> Iterable[str]:
    for event in happened:
        match event:
            case ce.BlockCopied(src=src, dst=dst, num_slots=num_slots):
                yield f"copied {src:03d} → {dst:03d}, {count(num_slots, 'slot')}"
            case ce.SwappedOut(copied=copied):
                yield f"swapped out {count(len(copied), 'block')}, {sum(copied)} copied to host memory"
            case ce.SwappedIn(copied=copied):
                yield f"swapped in {count(len(copied), 'block')}, {sum(copied)} copied from host memory"
            case _:
                pass


def _queues(queues: ev.QueueLengths) -> str:
    return (
        f"{queues.running} running · {queues.waiting} waiting · {queues.swapped} swapped · {queues.parked} parked"
    )


def _pool(pool: ev.PoolCounts) -> list[str]:
    lines = [
        f"{pool.free} free + {pool.cached} cached + {pool.in_use} in use + {pool.withheld} withheld = {pool.total}",
        f"{count(pool.shared, 'block')} shared · {pool.table_entries} table entries · {pool.pinned} pinned",
    ]
    if pool.host_total:
        lines.append(f"{pool.host_in_use} of {pool.host_total} host blocks in use")
    return lines


def _events(view: EngineView, step: int) -> list[str]:
    told = [line for line in view.lines if line.step == step]
    words = [f"{line.kind:<8} {line.text}" for line in told if line.kind != "STEP"]
    return words or ["no block and no sequence changed hands" if told else "no longer kept"]
