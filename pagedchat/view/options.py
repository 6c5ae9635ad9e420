"""What the command line says about the screens; the engine has its own configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pagedchat.chat.session import WhenFull
from pagedchat.config import DEFAULT_MODEL
from pagedchat.engine.sampling_params import SamplingOverrides

if TYPE_CHECKING:
    from pagedchat.history.run import RunHistory

MarkdownChoice = Literal["auto", "on", "off"]
ThoughtsChoice = Literal["fold", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UiOptions:
    """Set once, when the program starts."""

    model: str = DEFAULT_MODEL
    """Hub id or folder, shown until the engine says what it found."""
    beside: str = ""
    """Another model that stands beside it from the start; empty: none."""
    attached: str = ""
    """Host and port of the server whose engine it is; empty: the engine is one's own."""
    sessions: int = 1
    """Chats to start with."""
    overrides: SamplingOverrides = field(default_factory=SamplingOverrides)
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
    keymap: Mapping[str, str] = field(default_factory=dict)
    """Action -> keys, where a user gave it others."""
