"""A chat as one HTML page: no scripts, nothing loaded from anywhere, every character of a chat escaped."""

import re
from collections.abc import Iterator
from html import escape
from itertools import groupby

from pagedchat.chat.formats.markdown import ENDINGS, SPEAKERS
from pagedchat.chat.formats.saved_chat import SavedChat
from pagedchat.chat.formats.written_out import written_out
from pagedchat.chat.sanitize import one_line

_STYLE = """\
:root { color-scheme: light dark; }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
article { margin: 1rem 0; padding: .5rem 1rem; border-left: 4px solid #8888; }
article.user { border-color: #0178d4; }
h2 { margin: 0; font-size: .8rem; opacity: .7; }
pre { margin: .25rem 0; font: inherit; white-space: pre-wrap; overflow-wrap: anywhere; }
code { font: .875em/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }"""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TABLE_ROW = re.compile(r"\s*\|.*\|\s*")


def to_html(chat: SavedChat) -> str:
    """The texts as they are, line by line; of Markdown only code and tables are drawn, in columns."""
    title = _text(one_line(chat.title) or "Chat")
    system = [_article("system", "System", chat.system)] if chat.system else []
    turns = [
        _article(entry.turn.role, _speaker(SPEAKERS[entry.turn.role], ENDINGS[entry.ending]), entry.turn.text)
        for entry in chat.entries
    ]
    return "\n".join([
        "<!doctype html>",
        '<html lang="en">',
        '<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f"<h1>{title}</h1>",
        *system,
        *turns,
        "</html>",
        "",
    ])  # fmt: skip


def _article(kind: str, speaker: str, text: str) -> str:
    return f'<article class="{kind}"><h2>{speaker}</h2><pre dir="auto">\n{_with_columns(text)}</pre></article>'


def _speaker(name: str, ending: str) -> str:
    return f"{name} ({ending})" if ending else name


def _text(text: str) -> str:
    return escape(written_out(text))


def _with_columns(text: str) -> str:
    """Lines of code and of tables in letters of one width."""
    runs = groupby(_lines(text), key=lambda line: line[0])
    parts = ((columns, "\n".join([escape(line) for _, line in run])) for columns, run in runs)
    return "\n".join([f"<code>{part}</code>" if columns else part for columns, part in parts])


def _lines(text: str) -> Iterator[tuple[bool, str]]:
    """Whether a line stands in columns, and the line."""
    fence = ""
    for line in written_out(text).split("\n"):
        found = _FENCE.match(line)
        yield bool(fence or found or _TABLE_ROW.fullmatch(line)), line
        if not fence:
            fence = found[1] if found else ""
        elif found and found[1].startswith(fence) and not line[found.end() :].strip():
            fence = ""
