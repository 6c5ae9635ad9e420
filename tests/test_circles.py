"""No module of the package needs itself, not even for a type: such a knot wants a protocol."""

from pagedchat.resources import resource_dir
from tools.floor_plan import Graph, circles, import_graph

ROOT = resource_dir("kernels").parent


def test_circles_are_found() -> None:
    graph: Graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(circles(graph)) == [["a", "b", "c"], ["d", "e"]]


def test_no_module_of_the_package_needs_itself() -> None:
    graph = import_graph(ROOT, sorted((ROOT / "pagedchat").rglob("*.py")))
    assert len(graph) > 300
    assert graph["pagedchat.cli.main"] >= {"pagedchat.cli.options", "pagedchat.errors"}
    assert circles(graph) == []
