"""Colours of owners."""

from pagedchat.tui.inspector.pool.block_grid import BlockGrid
from pagedchat.tui.kit.owner_colors import NUM_COLORS, index_of_256, owner_colors
from pagedchat.view.engine_view import EngineView
from tests.tui.widget_app import WidgetApp


def test_owner_colours_differ_in_every_theme_and_on_256_colours() -> None:
    app = WidgetApp(BlockGrid(EngineView()))
    for theme in app.available_themes.values():
        colors = owner_colors(theme)
        assert len({color.hex for color in colors}) == NUM_COLORS
        assert len({index_of_256(color) for color in colors}) == NUM_COLORS, theme.name
