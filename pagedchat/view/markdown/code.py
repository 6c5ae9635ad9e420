"""Colours of source code: which characters are a keyword, a name, a string. Knows languages by Pygments, no rows.

Whoever draws a text without code does without this module, and starts sooner.

While a block of code is being written its lines are coloured as they come, each with what the lines before it left
open; of a finished block all lines together, because some languages end a comment many lines below.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from pygments.lexer import ExtendedRegexLexer, Lexer, RegexLexer
from pygments.lexers import get_all_lexers, get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, Token

from pagedchat.view.markdown.pieces import MAX_CODE

Colored = tuple[tuple[str, str], ...]
"""`(text, style)` of one line, from its start to its end; the style is empty for plain text."""

MAX_LINE = 1_000
"""Characters of a line that is coloured: what is longer is data."""
_MAX_RULES = 20
"""That may apply per character: some apply without taking one."""
_MAX_DEPTH = 8
"""Constructs within one another that a line may leave open."""

_STYLES: dict[Any, str] = {
    Comment: "comment", Keyword: "keyword", Operator.Word: "keyword", String: "string", Number: "number",
    Literal: "string", Name.Builtin: "name", Name.Function: "name", Name.Class: "name", Name.Decorator: "name",
    Name.Tag: "name", Name.Exception: "name", Name.Attribute: "name", Name.Namespace: "name",
    Generic.Inserted: "inserted", Generic.Deleted: "deleted", Generic.Heading: "keyword",
    Generic.Subheading: "keyword", Generic.Prompt: "comment", Token: "",
}  # fmt: skip


def colored_code(language: str, lines: Sequence[str], *, finished: bool) -> list[Colored]:
    """The lines of a block of code."""
    lexer = _lexer(language)
    if lexer is None or not lines:
        return [_plain(line) for line in lines]
    code = "\n".join(lines)
    if finished and len(code) <= MAX_CODE and all(len(line) <= MAX_LINE for line in lines):
        return list(_together(language, code))
    return list(line_by_line(language, lines))


def line_by_line(language: str, lines: Iterable[str]) -> Iterator[Colored]:
    """The lines of a block that is being written."""
    state: tuple[str, ...] = ("root",)
    for line in lines:
        colored, state = colored_line(language, line, state)
        yield colored


@lru_cache(4096)
def colored_line(language: str, line: str, state: tuple[str, ...]) -> tuple[Colored, tuple[str, ...]]:
    """One line behind lines that left the language in `state`, and the state after it."""
    lexer = _lexer(language)
    if lexer is None or len(line) > MAX_LINE:
        return _plain(line), state
    after = list(state)
    if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
        return _pieces(line, lambda: lexer.get_tokens_unprocessed(line + "\n")), state
    return _pieces(line, lambda: _lex(lexer, line + "\n", after)), tuple(after[-_MAX_DEPTH:])


@lru_cache(64)
def _together(language: str, code: str) -> tuple[Colored, ...]:
    lexer = _lexer(language)
    assert lexer is not None  # noqa: S101 - asked before
    lines: list[list[tuple[str, str]]] = [[]]
    for text, style in _pieces(code, lambda: lexer.get_tokens_unprocessed(code + "\n")):
        first, *others = text.split("\n")
        lines[-1].append((first, style))
        lines += [[(part, style)] for part in others]
    return tuple(tuple((text, style) for text, style in line if text) for line in lines)


def _plain(line: str) -> Colored:
    return ((line, ""),) if line else ()


def _pieces(text: str, tokens: Callable[[], Iterable[tuple[int, Any, str]]]) -> Colored:
    """All of `text`, whatever the lexer makes of it; neighbours of one style are one."""
    styles: list[tuple[int, str]] = []
    """Where each style ends."""
    done = 0
    try:
        for at, kind, value in tokens():
            end = min(len(text), at + len(value))
            if at > done:
                styles.append((at, ""))
            if end > done:
                styles.append((end, _style(kind)))
            done = max(done, at, end)
    except Exception:
        return _plain(text)
    found: list[tuple[str, str]] = []
    done = 0
    for end, style in [*styles, (len(text), "")]:
        part, done = text[done:end], max(done, end)
        if found and found[-1][1] == style:
            found[-1] = (found[-1][0] + part, style)
        elif part:
            found.append((part, style))
    return tuple(found)


@cache
def _style(kind: Any) -> str:
    while kind not in _STYLES:
        kind = kind.parent
    return _STYLES[kind]


@lru_cache(256)
def _lexer(language: str) -> Lexer | None:
    """By one of the names of a language; None for others, and for text."""
    name = language.lower()
    if name not in _known_names() or name in ("text", "plain", "output"):
        return None
    lexer: Lexer = get_lexer_by_name(name)
    return lexer


@cache
def _known_names() -> frozenset[str]:
    return frozenset(alias for _, aliases, _, _ in get_all_lexers(plugins=False) for alias in aliases)


def _lex(lexer: RegexLexer, text: str, stack: list[str]) -> Iterator[tuple[int, Any, str]]:
    """A lexer's rules over one line; `stack` are the states it is in, and those after the line."""
    rules: dict[str, list[tuple[Callable[..., Any], Any, Any]]] = lexer._tokens
    at = num_rules = 0
    while at < len(text) and num_rules < _MAX_RULES * len(text):
        num_rules += 1
        for matches, action, states in rules.get(stack[-1], ()):
            found = matches(text, at)
            if found is None or (found.end() == at and states is None):
                continue
            if callable(action):
                yield from action(lexer, found)
            elif action is not None:
                yield at, action, found.group()
            at = found.end()
            _go_to(states, stack)
            break
        else:
            at += 1


def _go_to(states: Any, stack: list[str]) -> None:
    """As Pygments writes it: how many states to leave, `#push`, or names of states to enter."""
    if isinstance(states, int):
        del stack[max(1, len(stack) + states) if states < 0 else states :]
    elif states == "#push":
        stack.append(stack[-1])
    elif states is not None:
        for state in states if isinstance(states, tuple) else (states,):
            if state == "#pop":
                if len(stack) > 1:
                    stack.pop()
            else:
                stack.append(stack[-1] if state == "#push" else state)
