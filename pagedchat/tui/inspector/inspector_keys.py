"""What the inspector's keys do wherever the focus is inside it; a panel with the focus may mean its own by some."""

import msgspec

from pagedchat.tui.actions import KeyAction

TIME_ACTIONS = (
    KeyAction(
        "inspector.pause",
        "space",
        "toggle_pause",
        "pause",
        "Pause or run",
        "Hold the scheduler, or let it run; in the past: back to the present",
    ),
    KeyAction(
        "inspector.step", ".", "step_on", "step", "Step forward", "One step of the paused scheduler, or of the past"
    ),
    KeyAction("inspector.back", "comma", "step_back", "back", "Step back", "The engine as it was a step earlier"),
    KeyAction(
        "inspector.next_event", "]", "next_event", "", "Next event", "Forward to the next step with an event"
    ),
    KeyAction(
        "inspector.previous_event",
        "[",
        "previous_event",
        "event",
        "Previous event",
        "Back to the last step with an event",
    ),
    KeyAction("inspector.first", "0", "first_step", "", "First step", "The beginning of the recording"),
    KeyAction("inspector.live", "$", "live", "", "Back to the present", "Show the engine as it is"),
    KeyAction("inspector.pace", "w", "cycle_pace", "slow", "Slow motion", "2 steps a second, 10, or full speed"),
    KeyAction(
        "inspector.goto", "g", "ask_goto", "go to", "Go to", "A block by its number, or a step: @ and its number"
    ),
)
"""Of the engine and of the recording."""

PANEL_ACTIONS = (
    KeyAction("inspector.colors", "c", "cycle_colors", "colours", "Map colours", "What the map's colours mean"),
    KeyAction("inspector.zoom_in", "+,=", "zoom(1)", "larger", "Larger cells", "Fewer blocks in sight"),
    KeyAction("inspector.zoom_out", "-", "zoom(-1)", "smaller", "Smaller cells", "More blocks in sight"),
    KeyAction(
        "inspector.lens",
        "z",
        "toggle_lens",
        "lens",
        "Lens on what is in use",
        "Blocks in use, large; or the whole pool",
    ),
    KeyAction("inspector.left", "h", "move_cursor(-1, 0)", "", "Block left", "Move the map's cursor"),
    KeyAction("inspector.down", "j", "move_cursor(0, 1)", "", "Block down", "Move the map's cursor"),
    KeyAction("inspector.up", "k", "move_cursor(0, -1)", "", "Block up", "Move the map's cursor"),
    KeyAction("inspector.right", "l", "move_cursor(1, 0)", "", "Block right", "Move the map's cursor"),
    KeyAction(
        "inspector.block", "enter", "open_block", "block", "Open block", "Owners, tokens and history of a block"
    ),
    KeyAction(
        "inspector.text", "t", "toggle_token_text", "text", "Token text", "What stands in the tables' blocks"
    ),
    KeyAction(
        "inspector.sharing", "s", "toggle_sharing", "sharing", "Sharing", "What chats share, in place of the tables"
    ),
    KeyAction(
        "inspector.groups",
        "n",
        "toggle_groups",
        "beams",
        "Beams and drafts",
        "Beams and drafts as blocks, in place of the tables",
    ),
    KeyAction("inspector.kinds", "e", "cycle_kinds", "events", "Event kinds", "Which kinds of events are shown"),
    KeyAction("inspector.each_kind", "E", "choose_kinds", "", "Each event kind", "A menu of all kinds of events"),
    KeyAction("inspector.filter", "/", "filter_events", "filter", "Filter events", "Only events with a given text"),
    KeyAction("inspector.full", "f", "toggle_full", "full", "One panel", "Only the panel with the focus, or all"),
    KeyAction("inspector.copy", "y", "copy_panel", "copy", "Copy panel", "What the panel shows, as plain text"),
    KeyAction("inspector.panel_1", "1", "focus_panel(0)", "", "To the map", "The map has the keys"),
    KeyAction("inspector.panel_2", "2", "focus_panel(1)", "", "To the tables", "The tables have the keys"),
    KeyAction("inspector.panel_3", "3", "focus_panel(2)", "", "To the timeline", "The timeline has the keys"),
    KeyAction("inspector.panel_4", "4", "focus_panel(3)", "", "To the events", "The events have the keys"),
)
"""Of the panels."""

INSPECTOR_ACTIONS = (*TIME_ACTIONS, *PANEL_ACTIONS)

WITH_ALT = "cwzghjklsteyn"
"""Letters whose keys also work with Alt; beside the chats only so, since letters alone are typed into a chat.

Alt+F, as plain terminals send it, is a word to the right in a text; Alt+1..9 are the chats; Alt+[ and Alt+] begin
escape sequences.
"""
SIGNS_WITH_ALT = {".": "full_stop", ",": "comma", "+": "plus", "-": "minus", "=": "equals_sign", "/": "slash"}
"""The same for signs -> what Textual calls them."""

ALT_KEYS = {letter: f"alt+{letter}" for letter in WITH_ALT} | {
    sign: f"alt+{name}" for sign, name in SIGNS_WITH_ALT.items()
}
"""What plain terminals send after Esc -> the key."""


def with_alt(actions: tuple[KeyAction, ...]) -> tuple[KeyAction, ...]:
    """Those of the actions that have a key with Alt, by that key."""
    by_alt = []
    for action in actions:
        named = [{"comma": ","}.get(key, key) for key in action.keys.split(",")]
        keys = [f"alt+{SIGNS_WITH_ALT.get(key, key)}" for key in named if key in {*WITH_ALT, *SIGNS_WITH_ALT}]
        if keys:
            by_alt.append(msgspec.structs.replace(action, id=f"{action.id}_alt", keys=",".join(keys)))
    return tuple(by_alt)


TO_THE_CHAT = KeyAction(
    "inspector.to_chat", "escape", "stop", "to the chat", "Back to the chat", "The chat has the keys"
)
"""Of a panel beside the chats."""
MOVE = KeyAction("inspector.next_panel", "tab", "focus_chat(1)", "next", "Next panel", "To the next panel or chat")
OPEN = next(action for action in PANEL_ACTIONS if action.id == "inspector.block")
