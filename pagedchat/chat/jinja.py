"""The environment in which a checkpoint's chat template runs: sandboxed, with the names that such templates expect.

Imports jinja2, so import it only where a template is about to be compiled.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _GenerationBlock(Extension):
    """`{% generation %}` marks what an assistant wrote, for training masks; here it only prints its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: str) -> Callable[..., str]:
    """The template's `render(**variables) -> str`.

    Raises:
        jinja2.TemplateError: the template does not parse.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, loopcontrols],
        autoescape=False,
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source).render


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(date_format: str) -> str:
    return datetime.now().strftime(date_format)


def _to_json(value: Any, **options: Any) -> str:
    """jinja2's own filter escapes for HTML, which no model was trained on."""
    return json.dumps(value, **{"ensure_ascii": False, **options})
