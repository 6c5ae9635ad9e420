"""The page of help."""

import pytest

from pagedchat.tui.commands.registry import GROUPS
from pagedchat.tui.help import chat_keys, commands, help_lines, inspector_keys, signs, words


def test_help(snap_compare, make_still_app):
    assert snap_compare(make_still_app(), terminal_size=(120, 40), press=["f1"])


@pytest.mark.parametrize("width", [40, 52, 68, 76])
def test_every_meaning_stands_in_its_column(width):
    usages = {command.usage for group in GROUPS.values() for command in group}
    for section in [words(), signs(), chat_keys({}), inspector_keys({}), *commands()]:
        for line in help_lines([section], width)[1:]:
            assert len(line.plain) <= width, "nothing is wrapped by the widget"
            key = line.plain[: section.cells]
            assert line.plain in usages or key.endswith(" "), f"{line.plain!r} runs over its column"
