"""What the command line says about the screens; the engine has its own configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from pagedchat.chat.session import WhenFull
from pagedchat.config import DEFAULT_MODEL
from pagedchat.engine.sampling_params import SamplingOverrides

if TYPE_CHECKING:
    from collections.abc import Callable

    from pagedchat.history.run import RunHistory
    from pagedchat.remote.openai.address import ServerAddress
    from pagedchat.service.commands import EngineLink

MarkdownChoice = Literal["auto", "on", "off"]
ThoughtsChoice = Literal["fold", "open"]


class UiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Set once, when the program starts."""

    model: str = DEFAULT_MODEL
    """Hub id or folder, shown until the engine says what it found."""
    beside: str = ""
    """Another model that stands beside it from the start; empty: none."""
    attached: str = ""
    """Host and port of the server whose engine it is; empty: the engine is one's own."""
    has_engine: bool = True
    """Whether there is an engine of this machine; without one the first of the servers stands in its place."""
    servers: tuple["ServerAddress", ...] = ()
    """Servers whose chats stand beside those of the engine from the start, from left to right."""
    known_servers: Mapping[str, "ServerAddress"] = msgspec.field(default_factory=dict)
    """Those that the settings file names."""
    api_key_env: str = ""
    """The variable with the key of servers that are given by their URL."""
    open_server: "Callable[[ServerAddress], EngineLink] | None" = None
    """Makes a link of an address, not yet started; None: as for any OpenAI-compatible server."""
    open_engine: "Callable[[str], EngineLink] | None" = None
    """Makes an engine of this machine with a model, where the program was started without one."""
    sessions: int = 1
    """Chats to start with."""
    overrides: SamplingOverrides = msgspec.field(default_factory=SamplingOverrides)
    """Sampling of every new chat, where it differs from the model's own."""
    system: str | None = None
    """System prompt of every new chat."""
    when_full: WhenFull = "stop"
    """What becomes of a new chat whose context is full."""
    raw: bool = False
    """Complete text as it stands; no chat template."""
    history: "RunHistory | None" = None
    """What was reopened, and where the chats are kept."""
    keeps: bool = False
    """Begin to keep the chats when the first frame is out, where nothing is reopened."""
    ephemeral: bool = False
    """Keep nothing at all, prompts for the arrow keys neither."""
    markdown: MarkdownChoice = "auto"
    """Whether replies are drawn as Markdown; auto: where the model has a chat template."""
    thoughts: ThoughtsChoice = "fold"
    """Whether what a model thinks before it answers is one row or all of it."""
    ascii: bool = False
    """Draw with ASCII characters only."""
    trace: Path | None = None
    """Record every step into this file."""
    metrics_port: int | None = None
    """Serve metrics for Prometheus there; 0 takes any free port."""
    metrics_url: str = ""
    """Where they are served now; empty if nowhere."""
    theme: str = ""
    """Colours to start with; empty: the library's own."""
    remember_in: Path | None = None
    """Where a theme that is chosen is kept for the next run."""
    keymap: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Action -> keys, where a user gave it others."""
