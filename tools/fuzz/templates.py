"""Chat templates: whatever a checkpoint's author wrote, it gives text or fails; it never does anything else.

Looked at is the sandbox alone. How long a template may run, how much memory it may take and what is said of one
that fails is up to whoever has it run; loops are short here.
"""

import sys
from typing import Any

from hypothesis import strategies as st

from pagedchat.chat.jinja import compile_template
from tools.fuzz.bent_trees import any_of
from tools.fuzz.target import Target

_NAMES = (
    "messages", "messages[0]", "message", "message.role", "message['content']", "bos_token",
    "add_generation_prompt", "tools", "loop", "loop.index", "namespace(a=1)", "undefined", "self", "cycler",
    "joiner", "lipsum", "range", "dict", "raise_exception", "strftime_now", "''", "[]", "{}", "1", "-1", "1.5",
    "none", "true", "'%s'", "'{0.__class__}'",
)  # fmt: skip
_DUNDERS = (
    "__class__", "__mro__", "__subclasses__()", "__init__", "__globals__", "__builtins__", "__import__('os')",
    "__dict__", "__doc__", "_environment", "gi_frame", "f_globals", "mro()", "func_code", "tb_frame",
    "__reduce__()", "__getattribute__('a')",
)  # fmt: skip
_FILTERS = (
    "trim", "upper", "tojson", "tojson(indent=2)", "length", "list", "join(',')", "map(attribute='role')",
    "map('upper')", "selectattr('role', 'equalto', 'user')", "first", "last", "default('x')", "string", "int",
    "float", "safe", "e", "replace('a', 'b')", "format(1)", "attr('__class__')", "attr('format')", "batch(2)",
    "groupby('role')", "dictsort", "xmlattr", "pprint", "random", "sort", "sum", "unique", "wordwrap(3)",
    "reverse", "items", "nosuch", "map(attribute='__class__')", "tojson(cls=range)",
    "tojson(default=raise_exception)", "tojson(separators=1)", "tojson(skipkeys=true)", "indent(3)", "center(9)",
    "truncate(3)", "urlize", "striptags", "filesizeformat", "round",
)  # fmt: skip
_METHODS = (
    ".split('a')", ".format(messages)", ".format_map({})", ".strip()", "[0]", "[-1]", "[::2]", "['a']",
    ".items()", ".append(1)", ".pop()", ".update({})", ".get('a')", ".encode()", ".join(messages)", "(1)", "()",
    "('%Y')", "('%')", ".zfill(3)", ".translate({})", ".a.b",
)  # fmt: skip
_WHOLE = (
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}", "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(cycler) }}", "{{ ('{0.' ~ '__class__}').format(range) }}",
    "{{ ''|attr('format')(lipsum) }}", "{% import 'os' as os %}", "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}", "{% set x = namespace(a=[]) %}{{ x.a.append(x) }}{{ x.a|tojson }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ raise_exception(messages) }}",
    "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}", "{{ range(999999999) }}",
    "{{ strftime_now('\\ud800') }}", "{{ '\\ud800' }}", "{{ strftime_now('%' * 50) }}", "{% break %}",
    "{% generation %}", "{% generation %}x{% endgeneration %}", "{{", "{%", "{#", "{{ }}", "{% if %}",
    "{% endfor %}", "{{ 1/0 }}", "{{ 'a' * -1 }}", "{{ [] < 1 }}", "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
    "{{ " + "-" * 3000 + "1 }}", "{% if 1 %}" * 120 + "x" + "{% endif %}" * 120,
    "{% for a in [1] %}" * 30 + "x" + "{% endfor %}" * 30, "\x00", "\ud800", "{{ '" + "a" * 5000 + "' }}",
    "{% set messages = 1 %}", "{% set bos_token %}x{% endset %}{{ bos_token }}", "{% call m() %}{% endcall %}",
    "{% filter upper %}x{% endfilter %}", "{% raw %}{{ x }}{% endraw %}",
)  # fmt: skip


@st.composite
def _expressions(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(_NAMES))
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 4))
        if kind == 0:
            text += "." + draw(st.sampled_from(_DUNDERS))
        elif kind == 1:
            text += "|" + draw(st.sampled_from(_FILTERS))
        elif kind == 2:
            text += draw(st.sampled_from(_METHODS))
        else:
            operator = draw(
                st.sampled_from((" + ", " ~ ", " % ", " in ", " == ", " and ", " is ", " // ", " < ", " if "))
            )
            text = f"({text}{operator}{draw(st.sampled_from(_NAMES))})"
    return text


def _statements(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, max_size=3).map("".join)
    return st.one_of(
        st.builds(
            "{{% for message in {} %}}{}{{% endfor %}}".format,
            st.sampled_from(("messages", "messages[1:]", "range(3)", "tools", "1", "message")),
            body,
        ),
        st.builds("{{% if {} %}}{}{{% else %}}{}{{% endif %}}".format, _expressions(), body, body),
        st.builds(
            "{{% set {} = {} %}}".format,
            st.sampled_from(("a", "message", "ns.a", "messages", "a, b")),
            _expressions(),
        ),
        st.builds("{{% macro m(a) %}}{}{{% endmacro %}}".format, body),
        st.builds("{{{{ m({}) }}}}".format, _expressions()),
    )


_SOURCES = st.lists(
    st.recursive(st.builds("{{{{ {} }}}}".format,
        _expressions()) | any_of(_WHOLE) | st.text(max_size=6), _statements, max_leaves=6),
    min_size=1, max_size=4,
).map("".join)  # fmt: skip


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


_SECRETS = ("<class 'object'", "<module '", "__builtins__': {")
_MESSAGES = st.lists(
    st.builds(
        _message,
        st.sampled_from(("system", "user", "assistant")),
        st.text(max_size=8) | st.just("{{ 1 }}{% break %}"),
    ),
    max_size=4,
)

_watching = False
_deeds: list[str] = []
_FORBIDDEN = ("open", "os.", "subprocess.", "socket.", "exec", "compile", "shutil.", "ctypes.", "pty.")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """What Python tells of what is done with files, processes and code."""
    if _watching and event.startswith(_FORBIDDEN) and not _is_traceback(event, arguments):
        _deeds.append(f"{event} {arguments!a}")


def _is_traceback(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether jinja only puts the template's own lines into the traceback of what it raised."""
    what = arguments[0] if arguments else None
    if event == "compile":
        return isinstance(what, bytes) and what.strip() == b"raise __jinja_exception__"
    return event == "exec" and "__jinja_exception__" in getattr(what, "co_names", ())


sys.addaudithook(_watch)


def _rendered(source: str, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
    """What the template writes; nothing where it fails."""
    global _watching  # noqa: PLW0603 - an audit hook stays for good, so it must know when to listen
    try:
        render = compile_template(source)
        _watching = True
        return render(messages=messages, add_generation_prompt=add_generation_prompt, tools=None)
    except Exception:  # of any kind, as it may come out of any program
        return ""
    finally:
        _watching = False


for first in ("{{ [].a.b }}", "{{ lipsum() }}"):  # what jinja2 itself imports for a traceback, and for words
    _rendered(first, [], False)


def _check(example: tuple[str, list[dict[str, str]], bool]) -> None:
    _deeds.clear()
    text = _rendered(*example)
    assert not _deeds, list(_deeds)
    assert isinstance(text, str)
    assert not any(word in text for word in _SECRETS), text


TARGETS = (Target("templates", st.tuples(_SOURCES, _MESSAGES, st.booleans()), _check),)
