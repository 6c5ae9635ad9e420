"""Lets mutmut change functions that have decorators, where it would leave them alone.

It does so because a decorator may register what it is given, and copies of a function would be registered too. So
here the copies go without decorators, and only the function that chooses among them keeps its own. That is enough
for properties, and for the methods that `singledispatch` chooses by type, all of which are named `_`: the copies
are named after the type.
"""

from collections.abc import Callable, Iterable, Sequence

import libcst as cst
import libcst.matchers as m
from mutmut.mutation import file_mutation
from mutmut.mutation.file_mutation import MODULE_STATEMENT, Mutation, MutationVisitor

ALLOWED = m.Decorator(m.Name("property") | m.Attribute(attr=m.Name("register")))

Statements = Sequence[MODULE_STATEMENT]
Arrangement = tuple[Statements, Statements, Statements, Sequence[str]]
"""What is declared before a class, what stands in place of the function, what is assigned after; mutants' names."""


def allow(replace: Callable[[object, str, object], None] = setattr) -> None:
    """From now on, in this process and those that it forks; `replace` puts the functions in their places."""
    skip, arrange = MutationVisitor._skip_node_and_children, file_mutation.function_trampoline_arrangement

    def skip_fewer(visitor: MutationVisitor, node: cst.CSTNode) -> bool:
        return not (isinstance(node, cst.FunctionDef) and _is_allowed(node)) and skip(visitor, node)

    def arrange_undecorated(
        function: cst.FunctionDef, mutants: Iterable[Mutation], class_name: str | None
    ) -> Arrangement:
        is_allowed = _is_allowed(function)
        plain = function.with_changes(decorators=[], name=cst.Name(_name(function))) if is_allowed else function
        declared, (chooser, *copies), assigned, names = arrange(plain, mutants, class_name)
        if is_allowed:
            chooser = chooser.with_changes(
                decorators=[*function.decorators, *chooser.decorators], name=function.name
            )
        return declared, [chooser, *copies], assigned, names

    replace(MutationVisitor, "_skip_node_and_children", skip_fewer)
    replace(file_mutation, "function_trampoline_arrangement", arrange_undecorated)


def _is_allowed(function: cst.FunctionDef) -> bool:
    return len(function.decorators) == 1 and m.matches(function.decorators[0], ALLOWED)


def _name(function: cst.FunctionDef) -> str:
    """The function's name; of one that is named `_`, the type that its last argument is chosen by."""
    name: str = function.name.value
    annotation = function.params.params[-1].annotation if name == "_" else None
    if annotation is not None:
        name = cst.Module([]).code_for_node(annotation.annotation)
    return name.replace(".", "_")
