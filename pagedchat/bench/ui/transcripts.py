"""What it costs to draw Markdown while it is written: in eight chats that hold a hundred messages each, and in one
of a hundred thousand lines beside one of ten. The share of a core is that of the program's own process.
"""

from dataclasses import dataclass

from pagedchat.bench.ui.keys import KeysResult, press_keys
from pagedchat.bench.ui.markdown_sample import SAMPLE
from pagedchat.bench.ui.running_app import RunningApp, running_app
from pagedchat.view.sentences.glyphs import CORNER

OLD_MESSAGES = 100
LONG, SHORT = 100_000, 10
"""Lines."""
_REPLY_TOKENS = 20_000
"""More than a run gets to."""
_SETTLE = 6.0
"""Seconds in which what is there already is drawn."""
_PAGES = 20
_PAGE_UP = "\x1b[5~"
_PAGE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptResult:
    """What was measured."""

    num_chats: int
    keys: KeysResult
    """Of the chats with a hundred messages each, while all of them stream."""
    chats_share: float
    """Of a core, by the same while nobody types."""
    long_share: float
    """Of a core, by one chat of a hundred thousand lines that streams."""
    short_share: float
    """By one of ten."""
    long_page_ms: float
    """Processor time for a page up in the long one, over what streaming takes meanwhile."""
    short_page_ms: float


def measure_transcripts(
    num_chats: int, num_blocks: int, rate: int, num_keys: int, seconds: int
) -> TranscriptResult:
    """Each chat gets `rate` tokens a second; shares are taken over so many seconds."""
    lines = OLD_MESSAGES // 2 * (SAMPLE.count("\n") + 1)
    with running_app(num_chats, num_blocks, 1 / rate, _REPLY_TOKENS, old_lines=lines, markdown=True) as app:
        chats_share = _share(app, seconds)
        keys = press_keys(app, num_keys)
    long_share, long_page = _one_chat(LONG, num_blocks, rate, seconds)
    short_share, short_page = _one_chat(SHORT, num_blocks, rate, seconds)
    return TranscriptResult(
        num_chats=num_chats,
        keys=keys,
        chats_share=round(chats_share, 3),
        long_share=round(long_share, 3),
        short_share=round(short_share, 3),
        long_page_ms=round(long_page, 2),
        short_page_ms=round(short_page, 2),
    )


def _one_chat(lines: int, num_blocks: int, rate: int, seconds: int) -> tuple[float, float]:
    """The share of a core while it streams, and what a page up takes."""
    with running_app(1, num_blocks, 1 / rate, _REPLY_TOKENS, old_lines=lines, markdown=True) as app:
        share = _share(app, seconds)
        start = app.sample()
        for _ in range(_PAGES):
            app.terminal.press(_PAGE_UP)
            app.terminal.read_for(_PAGE_SECONDS)
        end = app.sample()
    spent = end.cpu - start.cpu - share * (end.time - start.time)
    return share, 1000 * max(0.0, spent) / _PAGES


def _share(app: RunningApp, seconds: int) -> float:
    app.terminal.wait_for(CORNER)
    app.wait_for_steps()
    app.terminal.read_for(_SETTLE)
    start = app.sample()
    app.terminal.read_for(seconds)
    end = app.sample()
    return (end.cpu - start.cpu) / (end.time - start.time)
