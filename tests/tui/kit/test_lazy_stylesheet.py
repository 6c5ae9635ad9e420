"""What a part of a widget looks like is what Textual says of it, worked out when it is asked for."""

from typing import Any, ClassVar

import pytest
from textual.app import App, ComposeResult
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.widget import Widget

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.tui.app import PagedChatApp
from pagedchat.tui.kit.lazy_stylesheet import LazyStylesheet
from pagedchat.view.options import UiOptions
from tests.fakes_tui import FakeEngineLink


class Lamp(Widget):
    """Lit or not."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"lamp--bulb", "lamp--foot"}
    DEFAULT_CSS = """
    Lamp {
        & > .lamp--bulb { color: #101010; }
        & > .lamp--foot { color: #202020; }
        &.-lit > .lamp--bulb { color: #ffff00; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.refreshes = 0

    def refresh(self, *regions: Any, **options: Any) -> "Lamp":
        self.refreshes += 1
        super().refresh(*regions, **options)
        return self

    def color(self, part: str) -> str:
        return self.get_component_styles(f"lamp--{part}").color.hex


class LampApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.stylesheet = LazyStylesheet(variables=self.get_css_variables())
        self.lamp = Lamp()

    def compose(self) -> ComposeResult:
        yield self.lamp


async def test_nothing_is_worked_out_before_somebody_asks() -> None:
    app = LampApp()
    async with app.run_test() as pilot:
        await pilot.pause()
        assert len(app.lamp._component_styles) == 0
        assert (app.lamp.color("foot"), len(app.lamp._component_styles)) == ("#202020", 1)


async def test_a_widget_that_looks_different_now_is_drawn_again() -> None:
    app = LampApp()
    async with app.run_test() as pilot:
        assert app.lamp.color("bulb") == "#101010"
        await pilot.pause()
        before = app.lamp.refreshes
        app.lamp.update_node_styles(animate=False)
        assert app.lamp.refreshes == before
        app.lamp.set_class(True, "-lit")
        assert app.lamp.color("bulb") == "#FFFF00"
        assert app.lamp.refreshes > before


async def test_unknown_names_and_widgets_that_have_gone_are_refused_as_by_textual() -> None:
    app = LampApp()
    async with app.run_test() as pilot:
        with pytest.raises(KeyError):
            app.lamp.get_component_styles("lamp--shade")
        await app.lamp.remove()
        await pilot.pause()
        with pytest.raises(KeyError):
            app.lamp.get_component_styles("lamp--bulb")


async def test_a_copy_is_as_lazy() -> None:
    app = LampApp()
    async with app.run_test():
        copied = app.stylesheet.copy()
        assert isinstance(copied, LazyStylesheet)
        assert copied.source == app.stylesheet.source


async def test_every_part_of_our_screens_looks_as_textual_has_it() -> None:
    app = PagedChatApp(FakeEngineLink(), UiOptions(model="toy", sessions=3), PromptHistory())
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.press("f3")
        await pilot.pause()
        assert isinstance(app.stylesheet, LazyStylesheet)
        widgets = [node for node in app.screen.walk_children(with_self=True) if node._get_component_classes()]
        assert len(widgets) > 10
        for widget in widgets:
            for name, styles in eager(app.stylesheet, widget).items():
                assert widget.get_component_styles(name).get_rules() == styles, (widget, name)


def eager(stylesheet: Stylesheet, widget: DOMNode) -> dict[str, Any]:
    """By Textual's own way."""
    kept, widget._component_styles = widget._component_styles, {}
    Stylesheet._process_component_classes(stylesheet, widget)
    found = {name: styles.get_rules() for name, styles in widget._component_styles.items()}
    widget._component_styles = kept
    return found
