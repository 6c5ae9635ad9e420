"""What each part costs to import, asked of a clean interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest

import pagedchat

HEAVY = ("torch", "transformers", "numpy", "cuda")
SCREEN = ("textual", "rich")
VIEW = Path(__file__).parents[1] / "pagedchat" / "view"

CHAT = [
    "pagedchat.chat.conversation",
    "pagedchat.chat.formats.files",
    "pagedchat.chat.replies",
    "pagedchat.chat.sanitize",
    "pagedchat.chat.session",
    "pagedchat.chat.template",
]
WITHOUT_SCREEN = [
    "pagedchat",
    "pagedchat.cli.main",
    "pagedchat.config",
    "pagedchat.cache_events",
    "pagedchat.events",
    "pagedchat.engine.core",
    "pagedchat.engine.mirror",
    "pagedchat.api.async_llm",
    "pagedchat.api.engine",
    "pagedchat.api.llm",
    "pagedchat.history.thread",
    "pagedchat.requests.requests",
    "pagedchat.kv_events.publisher",
    "pagedchat.cli.oneshot",
    "pagedchat.cli.serve",
    "pagedchat.cli.replay",
    "pagedchat.cli.settings",
    "pagedchat.remote.attached",
    "pagedchat.remote.openai.link",
    "pagedchat.server.attach",
    "pagedchat.server.hub",
    "pagedchat.server.run",
    "pagedchat.service.client",
    "pagedchat.service.commands",
    "pagedchat.trace.reader",
    "pagedchat.trace.recorder",
    *CHAT,
]
OPS = Path(pagedchat.__file__).parent / "ops"


def loaded_after(statement: str, packages: tuple[str, ...]) -> list[str]:
    """Which of `packages` a fresh interpreter has loaded after `statement`."""
    program = f"import sys\n{statement}\nprint(*[name for name in {packages!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return result.stdout.split()


@pytest.mark.parametrize("module", WITHOUT_SCREEN)
def test_module_loads_neither_torch_nor_the_screen(module: str) -> None:
    assert loaded_after(f"import {module}", (*HEAVY, *SCREEN)) == []


def test_the_whole_view_loads_neither_torch_nor_textual_and_of_rich_only_the_widths_of_characters() -> None:
    modules = sorted(
        ".".join(path.relative_to(VIEW.parents[1]).with_suffix("").parts) for path in VIEW.rglob("*.py")
    )
    assert len(modules) > 40
    statement = f"import {', '.join(modules)}"
    assert loaded_after(statement, (*HEAVY, "textual", "rich.console", "rich.text", "rich.style")) == []


def test_terminal_loads_no_torch() -> None:
    assert loaded_after("import pagedchat.tui.app", (*HEAVY, "textual")) == ["textual"]


def test_the_first_frame_waits_for_nothing_that_comes_later_or_seldom() -> None:
    seldom = ("hashlib", "secrets", "multiprocessing", "sqlite3")
    later = ("markdown_it", "pygments", "websockets", "openai", "jinja2", "pagedchat.metrics.stats_socket")
    commands = ("pagedchat.tui.commands.registry", "pagedchat.tui.palette", "pagedchat.tui.inspector.panel")
    command = "import pagedchat.cli.main, pagedchat.tui.app, pagedchat.remote.attached, pagedchat.remote.client_key"
    assert loaded_after(command, (*seldom, *later, *commands)) == []


def test_kernels_and_the_plans_that_declare_them_load_no_torch() -> None:
    assert loaded_after("import pagedchat.ops.catalogue", HEAVY) == []
    plans = [path for path in OPS.rglob("*.py") if path.stem == "kernels" or path.stem.endswith("plan")]
    assert len(plans) >= 12
    modules = ", ".join(f"pagedchat.ops.{path.parent.name}.{path.stem}" for path in plans)
    assert loaded_after(f"import {modules}", HEAVY) == []


def test_a_server_is_asked_without_torch_and_its_client_is_loaded_with_the_first() -> None:
    assert loaded_after("import pagedchat.remote.openai.link", ("openai",)) == []
    asked = (
        "import asyncio\n"
        "from tests.remote.openai.link_rig import connected\n"
        "async def ask():\n"
        "    async with connected() as (_, heard):\n"
        "        assert (await heard.reply('Hi'))[0] == 'You said: Hi'\n"
        "asyncio.run(ask())\n"
    )
    assert loaded_after(asked, (*HEAVY, *SCREEN, "openai")) == ["openai"]


def test_names_of_the_package_load_no_torch() -> None:
    names = "LLM, AsyncLLM, LLMEngine, RequestOutput, RequestOutputKind, SamplingParams"
    assert loaded_after(f"from pagedchat import {names}", HEAVY) == []


def test_unknown_attribute_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pagedchat.nonsense


def test_help_and_the_chats_load_nothing_of_a_server() -> None:
    packages = ("starlette", "uvicorn", "websockets", "openai")
    assert loaded_after("import pagedchat.cli.main, pagedchat.cli.serve, pagedchat.tui.app", packages) == []


def test_a_reply_without_code_loads_no_pygments() -> None:
    drawn = "from pagedchat.view.markdown import stream\nstream.MarkdownDocument(40).update({!r}, finished=True)"
    assert loaded_after(drawn.format("Some *words*, `and` more."), ("pygments",)) == []
    assert loaded_after(drawn.format("```python\nx = 1\n```\n"), ("pygments",)) == ["pygments"]
