"""Where settings lie by the platform's custom. Opens nothing."""

from pathlib import Path

from platformdirs import user_config_path, user_state_path

CONFIG_NAME = "config.toml"


def config_path() -> Path:
    """The settings that a user writes (`~/.config/pagedchat/config.toml` on Linux)."""
    return user_config_path("pagedchat", appauthor=False) / CONFIG_NAME


def templates_path() -> Path:
    """The folder of prompt templates beside them."""
    return user_config_path("pagedchat", appauthor=False) / "templates"


def drafts_path() -> Path:
    """Prompts while they are in an editor."""
    return user_state_path("pagedchat", appauthor=False) / "drafts"


def remembered_path() -> Path:
    """What the program remembers by itself (`~/.local/state/pagedchat/remembered.json` on Linux)."""
    return user_state_path("pagedchat", appauthor=False) / "remembered.json"


def client_key_path() -> Path:
    """By what servers know this user's terminals."""
    return user_state_path("pagedchat", appauthor=False) / "client-key"
