"""The floor plan in figures: `python -m tools.floor_plan [FOLDER]` measures a checkout, beside another one.

Counts what lies in pagedchat/ and kernels/: files, lines, the fullest folder, the longest function, crumbs among
the modules, imports that lead back to where they came from. Reads text alone; runs nothing of it.
"""

import ast
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

Graph = dict[str, set[str]]
SMALL, CRUMB = 60, 30
"""Lines."""


def main(folder: Path) -> None:
    """Print the table."""
    modules = [path for path in sorted((folder / "pagedchat").rglob("*.py")) if path.stat().st_size]
    kernels = sorted(path for path in (folder / "kernels").rglob("*") if path.suffix in (".cu", ".cuh"))
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in chain(modules, kernels)}
    counts = Counter(path.parent.relative_to(folder).as_posix() for path in lines)
    fullest, most = counts.most_common(1)[0]
    length, longest = max(chain.from_iterable(map(functions, modules)))
    rows = [
        ("modules, their lines", f"{len(modules)}, {sum(lines[path] for path in modules)}"),
        ("kernel files, their lines", f"{len(kernels)}, {sum(lines[path] for path in kernels)}"),
        ("the fullest folder", f"{fullest}, {most} files"),
        ("the longest function", f"{longest}, {length} lines"),
        ("functions of more than 8 arguments", str(sum(map(num_crowded, modules)))),
        (f"modules of {CRUMB} lines and fewer", str(sum(lines[path] <= CRUMB for path in modules))),
        (f"modules of {SMALL} lines and fewer", str(sum(lines[path] <= SMALL for path in modules))),
    ]
    knots = circles(import_graph(folder, modules))
    rows.append(("circles of imports, those for types included", describe(knots)))
    for name, value in rows:
        print(f"{name:46} {value}")


def describe(knots: list[list[str]]) -> str:
    """How many circles, and how large they are."""
    return f"{len(knots)} of {', '.join(str(len(knot)) for knot in knots)} modules" if knots else "none"


# --- functions ------------------------------------------------------------------------------------------


def functions(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and name of every function, its docstring not counted."""
    for node in defined(path):
        text = ast.get_docstring(node, clean=False)
        rest = node.body[1:] if text is not None else node.body
        if rest:
            yield (node.end_lineno or 0) - rest[0].lineno + 1, f"{path.stem}.{node.name}"


def num_crowded(path: Path) -> int:
    """Functions that take more than eight arguments; what makes an object is not counted."""
    crowded = [node for node in defined(path) if node.name != "__init__" and num_arguments(node.args) > 8]
    return len(crowded)


def num_arguments(arguments: ast.arguments) -> int:
    """Without `self`."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([argument for argument in named if argument.arg not in ("self", "cls")])


def defined(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a module, methods and inner ones too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


# --- imports --------------------------------------------------------------------------------------------


def import_graph(folder: Path, modules: list[Path]) -> Graph:
    """Module -> those of the same package that it imports, in functions and for types too."""
    trees = {name_of(path, folder): ast.parse(path.read_text(encoding="utf-8")) for path in modules}
    return {name: set(imported(tree, trees.keys())) - {name} for name, tree in trees.items()}


def name_of(path: Path, folder: Path) -> str:
    """`pagedchat.engine.core`."""
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, known: Collection[str]) -> Iterator[str]:
    """Those of the known modules that it imports; `from package import module` means the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (
                name if name in known else node.module for name in names if name in known or node.module in known
            )


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules each of which leads to all others of its group (Kosaraju's algorithm)."""
    seen: set[str] = set()
    order = list(chain.from_iterable(reached(graph, start, seen) for start in graph))
    backwards: Graph = {name: set() for name in graph}
    for name, others in graph.items():
        for other in others:
            backwards[other].add(name)
    seen.clear()
    groups = [reached(backwards, start, seen) for start in reversed(order)]
    return [sorted(group) for group in groups if len(group) > 1]


def reached(graph: Graph, start: str, seen: set[str]) -> list[str]:
    """What is reached from `start` and not in `seen` yet, each after all that it leads to."""
    if start in seen:
        return []
    seen.add(start)
    found: list[str] = []
    stack = [(start, iter(sorted(graph[start])))]
    while stack:
        name, others = stack[-1]
        following = next((other for other in others if other not in seen), None)
        if following is None:
            found.append(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(sorted(graph[following]))))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
