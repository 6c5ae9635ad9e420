"""Processes that have a part of the model each, in words: where they are, their pools, their last steps. Pure."""

from pagedchat.chat.sanitize import one_line
from pagedchat.events import EngineReady, StepReport
from pagedchat.units import format_size


def rank_lines(info: EngineReady, report: StepReport | None) -> list[str]:
    """A line for each, none where one process has all of the model.

    Args:
        info: of the engine.
        report: of the step whose seconds are told; None tells none.
    """
    seconds = report.rank_seconds if report is not None else ()
    lines = []
    for rank, of_rank in enumerate(info.ranks):
        line = f"rank {rank} · {one_line(of_rank.device)} · {info.num_blocks} blocks, {format_size(of_rank.memory)}"
        lines.append(f"{line} · {1e3 * seconds[rank]:.1f} ms" if rank < len(seconds) else line)
    return lines


def ranks_in_a_line(info: EngineReady, report: StepReport | None) -> str:
    """The same as short as can be, under a map of blocks that all of them have; empty where there is one process.

    Args:
        info, report: see `rank_lines`.
    """
    seconds = report.rank_seconds if report is not None else ()
    each = []
    for rank, of_rank in enumerate(info.ranks):
        took = f", {1e3 * seconds[rank]:.1f} ms" if rank < len(seconds) else ""
        each.append(f"{rank}: {format_size(of_rank.memory)}{took}")
    return f"rank {' · '.join(each)}" if each else ""
