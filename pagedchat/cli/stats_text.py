"""A running program's figures as people read them. The names in them are text, never escapes."""

from collections.abc import Mapping, Sequence
from typing import Any

from pagedchat.chat.sanitize import one_line
from pagedchat.units import format_size

_COLUMNS = ("chat", "status", "tokens", "own", "shared", "tok/s")
_NO_REPORT = "nothing has run yet"


def brief(answer: Mapping[str, Any]) -> str:
    """Enough to tell it from others: `4711 pagedchat-toy, 2 chats, up 3 min`."""
    chats = len(answer["chats"])
    words = [f"{answer['pid']} {one_line(answer['model'])}", f"{chats} chat{'s' * (chats != 1)}"]
    return ", ".join([*words, f"up {_age(answer['uptime'])}"])


def stats_text(answer: Mapping[str, Any]) -> str:
    """Everything, a line for each concern and one for each chat."""
    lines = [_title(answer), *_engine(answer), *_work(answer)]
    if answer["metrics_url"]:
        lines.append(f"metrics  {answer['metrics_url']}")
    return "\n".join([*lines, "", *_chats(answer["chats"])])


def _title(answer: Mapping[str, Any]) -> str:
    return f"pagedchat {answer['version']}, process {brief(answer)}, {answer['state']}"


def _engine(answer: Mapping[str, Any]) -> list[str]:
    engine = answer["engine"]
    if engine is None:
        return []
    return [
        f"engine   {one_line(engine['device'])} {engine['dtype']}, {engine['attention_backend']} attention, "
        f"{engine['num_blocks']} blocks of {engine['block_size']} tokens"
    ]


def _work(answer: Mapping[str, Any]) -> list[str]:
    pool, queues, counters, rates = (answer[name] for name in ("pool", "queues", "counters", "rates"))
    if pool is None:
        return [f"pool     {_NO_REPORT}"]
    withheld = f", {pool['withheld']} withheld" if pool["withheld"] else ""
    return [
        f"pool     {pool['in_use']}/{pool['total']} in use, {pool['free']} free, {pool['cached']} cached"
        f"{withheld}, {pool['shared']} shared (saves {format_size(pool['saved_bytes'])})",
        f"queues   {queues['running']} running, {queues['waiting']} waiting, {queues['swapped']} swapped, "
        f"{queues['parked']} parked",
        f"work     step {counters['steps']}, {rates['tokens_per_second']:.0f} tok/s, batch {rates['batch']}, "
        f"{counters['prefill_tokens']} tokens prefilled, {counters['decode_tokens']} decoded",
        f"cache    {counters['prefix_hits']} of {counters['prefix_queries']} prompt tokens found, "
        f"{counters['copies']} blocks copied on write, {counters['evictions']} evicted",
    ]


def _chats(chats: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [_COLUMNS, *map(_row, chats)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    return [_line(row, widths) for row in rows]


def _row(chat: Mapping[str, Any]) -> tuple[str, ...]:
    name = f"{chat['session_id']} {one_line(chat['name'])}".rstrip()
    figures = (chat["tokens"], chat["blocks_own"], chat["blocks_shared"])
    return name, chat["status"], *map(str, figures), f"{chat['tokens_per_second']:.0f}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Words to the left, figures to the right."""
    words = [f"{cell:<{width}}" for cell, width in zip(row[:2], widths[:2], strict=True)]
    figures = [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*words, *figures]).rstrip()


def _age(seconds: float) -> str:
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
