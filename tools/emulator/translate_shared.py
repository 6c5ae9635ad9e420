"""`__shared__` variables become references into the memory of the thread block that runs."""

import re
from dataclasses import dataclass

from tools.emulator.scan import depth_at, split

_ALIGNMENT = r"(?:(?:__align__|alignas)\s*\([^)]*\)\s*)?"
_DECLARATION = re.compile(rf"(extern\s+)?\b__shared__\s+{_ALIGNMENT}([^;{{}}]+);")
_DECLARATOR = re.compile(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)")
_TYPE = re.compile(r"((?:unsigned|signed|long|short)\s+)*[\w:]+(?:<[^;]*?>)?")


@dataclass(frozen=True, slots=True)
class _Variable:
    """One declarator."""

    number: int
    element: str
    name: str
    dimensions: str
    is_dynamic: bool

    @property
    def type(self) -> str:
        return f"shared_type_{self.number}"

    @property
    def value(self) -> str:
        if self.is_dynamic:
            return f"*static_cast<{self.type}*>(emulator::dynamic_shared())"
        return f"emulator::shared_variable<{self.type}, {self.number}>()"

    @property
    def alias(self) -> str:
        return f"using {self.type} = {self.element}{self.dimensions};"


def translate_shared(text: str) -> str:
    """Preprocessed kernel text without `__shared__`; lines keep their numbers.

    A variable of a function becomes a reference. One of the file becomes a function, as each thread block has its
    own: from there on its name must not mean anything else.
    """
    number = 0
    while match := _DECLARATION.search(text):
        number += 1
        variables = _variables(match, 100 * number)
        in_function = depth_at(text, match.start()) > 0
        lines = "\n" * match[0].count("\n")
        before, after = text[: match.start()], text[match.end() :]
        if in_function:
            made = " ".join(f"{v.alias} {v.type}& {v.name} = {v.value};" for v in variables)
        else:
            made = " ".join(
                f"{v.alias} inline {v.type}& {v.name}_of_block() {{ return {v.value}; }}" for v in variables
            )
            for variable in variables:
                after = re.sub(rf"(?<![\w.>:]){variable.name}\b", f"{variable.name}_of_block()", after)
        text = before + made + lines + after
    return text


def _variables(match: re.Match[str], number: int) -> list[_Variable]:
    """What a declaration declares: a type, then names with dimensions."""
    declared = " ".join(match[2].split())
    element = _TYPE.match(declared)
    if element is None:
        raise ValueError(f"not a declaration of shared memory: {declared}")
    variables: list[_Variable] = []
    for declarator in split(declared[element.end() :], ","):
        parts = _DECLARATOR.fullmatch(declarator)
        if parts is None:
            raise ValueError(f"not a variable in shared memory: {declarator}")
        variables.append(_Variable(number + len(variables), element[0], parts[1], parts[2].strip(), bool(match[1])))
    return variables
