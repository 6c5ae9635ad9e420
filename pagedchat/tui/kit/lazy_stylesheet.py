"""Works out what a part of a widget looks like when it is first drawn.

Textual matches all rules with each component class of each widget when the widget is made, and again whenever a
class of it or above it changes. Of a pane's sixty most are never drawn.
"""

from collections.abc import Collection

from textual.css.styles import RenderStyles
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode


class LazyStylesheet(Stylesheet):
    """Textual's own, but for component classes that nobody has asked for."""

    def copy(self) -> "LazyStylesheet":
        """Another one of the same sources."""
        copied = LazyStylesheet(variables=self._variables.copy())
        copied.source = self.source.copy()
        return copied

    def _process_component_classes(self, node: DOMNode) -> None:
        """Work out anew what was asked for; where that is another style than before, the widget is drawn again."""
        names = node._get_component_classes()
        if not names:
            return
        drawn_with, node._component_styles = node._component_styles, _ComponentStyles(self, node, names)
        if any(node._component_styles[name] != styles for name, styles in drawn_with.items() if name in names):
            node.refresh()


class _ComponentStyles(dict[str, RenderStyles]):
    """A component class -> its styles, as far as somebody has asked for them; any of `names` can be asked for."""

    def __init__(self, stylesheet: Stylesheet, node: DOMNode, names: Collection[str]) -> None:
        super().__init__()
        self._stylesheet = stylesheet
        self._node = node
        self._names = frozenset(names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __missing__(self, name: str) -> RenderStyles:
        if name not in self._names:
            raise KeyError(name)
        virtual_node = DOMNode(classes=name)
        virtual_node._attach(self._node)
        self._stylesheet.apply(virtual_node, animate=False)
        self[name] = styles = virtual_node.styles
        return styles

    def clear(self) -> None:
        """The widget has gone: nothing can be asked for any more."""
        super().clear()
        self._names = frozenset()
