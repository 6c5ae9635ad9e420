"""The program and its chats as slash commands see them: all that a command may touch.

The app and the screen of the chats are made so. Keys call the same methods.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pagedchat.chat.formats.saved_chat import SavedChat
from pagedchat.chat.session import ChatSession
from pagedchat.tui.engine_group import EngineGroup, EngineGroups

Chosen = Callable[[int], Awaitable[None] | None]
"""Gets the index of what was chosen."""


class Chats(Protocol):
    """The chats on the screen. What cannot be done raises `PagedChatError`."""

    async def open_chat(self, name: str = "") -> None:
        """Another chat, in a pane of its own."""

    async def open_saved(self, saved: SavedChat) -> None:
        """A chat of a file, in a pane of its own."""

    async def fork_chat(self, source: ChatSession, count: int = 1, num_prompts: int | None = None) -> None:
        """So many more chats over the same blocks, each to the right of its source; with its first prompts."""

    def regenerate(self, chat: ChatSession) -> None:
        """Another reply to the last prompt."""

    def continue_reply(self, chat: ChatSession) -> None:
        """Go on with the last reply, where it was cut short."""

    async def reply_besides(self, chat: ChatSession, count: int) -> None:
        """So many other replies to the last prompt, each in a chat of its own."""

    async def ask_several(self, chat: ChatSession, count: int, prompt: str) -> None:
        """So many answers to one prompt, each in a chat of its own."""

    def search_reply(self, chat: ChatSession, beam_width: int, prompt: str = "") -> None:
        """A reply by beam search, to a new prompt or another one to the last."""

    def edit_prompt(self, chat: ChatSession, number: int | None = None) -> None:
        """Go back before a prompt, the last one, and write it anew."""

    def show_likelihood(self, chats: Iterable[ChatSession], count: int | None) -> None:
        """How sure the model was of the replies to come, with so many alternatives of each token; None: no more."""

    def take_back(self, chat: ChatSession, count: int) -> None:
        """Go back behind the reply before so many prompts."""

    def go_to_sibling(self, chat: ChatSession, step: int) -> None:
        """To the branch before or behind this one."""

    def promote(self, chat: ChatSession) -> None:
        """Close the chats that answer the same prompt otherwise."""

    async def toggle_tree(self) -> None:
        """Show the tree of the active chat's branches beside the chats, or put it away."""

    def stop_replies(self, chats: Iterable[ChatSession]) -> bool:
        """End the replies of these chats; false if none is being written."""

    def send_to(self, chats: Iterable[ChatSession], prompt: str) -> None:
        """One prompt to several chats, once to each."""

    async def leave_chat(self, chat: ChatSession) -> None:
        """Drop a chat; asks first if something would be lost. Leaving the last one leaves the program."""

    def copy_reply(self, chat: ChatSession) -> None:
        """The newest reply to the clipboard."""

    def copy_code(self, chat: ChatSession) -> None:
        """The last block of code of the newest reply to the clipboard."""

    def copy_chat(self, chat: ChatSession) -> None:
        """All of a chat to the clipboard, as Markdown."""

    def write(self, text: str) -> None:
        """Begin a prompt in the active chat's composer, if it is empty."""

    def set_layout(self, panes: int | None) -> None:
        """Show this many panes; None: as many as there are chats."""


class Program(Protocol):
    """What is around the chats. What cannot be done raises `PagedChatError`."""

    groups: EngineGroups
    """The engines with their chats; one of them is shown."""
    metrics_url: str
    """Where the metrics are served; empty if nowhere."""
    theme: str
    """The name of the colours."""

    @property
    def chats(self) -> Chats:
        """The chats on the screen."""

    @property
    def available_themes(self) -> Mapping[str, object]:
        """By their names."""

    @property
    def keeps_chats(self) -> bool:
        """Whether closed chats can be reopened."""

    def say(self, message: str) -> None:
        """One short sentence that goes away by itself."""

    def copy(self, text: str) -> None:
        """Text to the clipboard, without anything that a terminal could take for a command."""

    def confirm(self, question: str, detail: str, verb: str, then: Callable[[], None]) -> None:
        """Ask before something is done that cannot be undone."""

    def choose(self, title: str, choices: Sequence[str], then: Chosen) -> None:
        """Have one of these lines chosen; `then` gets its index."""

    def open_block(self, block_id: int) -> None:
        """Everything about one block, in front of what is shown."""

    async def show_table(self, session_id: int) -> None:
        """A chat's block table in the inspector."""

    def go_to_step(self, step: int | None) -> None:
        """Show the engine as it was after a recorded step, or as it is."""

    def show_history(self, words: str = "") -> None:
        """A list of all chats that are kept, or of those that have these words."""

    async def delete_chat(self, chat: ChatSession) -> None:
        """Take a chat off the screen and off the lists; for a day it can be had back."""

    def open_trace(self, path: Path) -> None:
        """Replay a recording, in front of the chats."""

    # What keys do by these names, too.

    def action_help(self) -> None:
        """Keys, commands, signs and words."""

    def action_change_theme(self) -> None:
        """A list of all colours to choose from."""

    async def action_model(self) -> None:
        """Choose another model from a list."""

    async def switch_model(self, name: str) -> None:
        """Load another model; asks first where replies are being written."""

    async def open_beside(self, name: str) -> None:
        """Load another model beside this one, for chats in a second group of panes."""

    async def close_model(self) -> None:
        """End one of two engines, and close its chats; asks first where one has something in it."""

    def choose_server(self) -> None:
        """A list of the servers that are known by name."""

    async def open_server(self, text: str) -> None:
        """Ask a server by its name or URL, or this machine, for chats in another group of panes."""

    def choose_place(self, chat: ChatSession) -> None:
        """Move a chat to another group, the only other one or one of several."""

    async def move_chat(self, chat: ChatSession, group: EngineGroup) -> None:
        """Have a chat go on in another group."""

    async def action_tour(self) -> None:
        """Begin the tour, or end the one that is being given."""

    def action_restart(self) -> None:
        """Start the engine again; asks first where one runs."""

    async def action_quit(self) -> None:
        """Leave; asks first while replies are being written."""
