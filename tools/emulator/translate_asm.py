"""`asm` statements become calls of the runtime, with the text and the operands in the order of their numbers."""

import re

from tools.emulator.scan import closing, split

_ASM = re.compile(r"\b(?:asm|__asm__)\s*(?:volatile|__volatile__)?\s*\(")


def translate_asm(text: str) -> str:
    """Preprocessed kernel text without `asm`; lines keep their numbers.

    Raises:
        ValueError: an `asm` statement that does not end.
    """
    parts, at = [], 0
    for match in _ASM.finditer(text):
        end = closing(text, match.end() - 1)
        statement = text[match.start() : end]
        parts += [text[at : match.start()], _call(text[match.end() : end]), "\n" * statement.count("\n")]
        at = end + 1
    return "".join([*parts, text[at:]])


def _call(inside: str) -> str:
    """Of what stands in the brackets of an `asm`: text : results : inputs : clobbered."""
    # NOTE: "::" is two empty parts, and a scope only within the brackets of an operand.
    template, results, inputs, *_ = [*split(inside, ":"), "", ""]
    operands = [f"emulator::out{_expression(operand)}" for operand in split(results, ",")]
    operands += [f"emulator::in{_expression(operand)}" for operand in split(inputs, ",")]
    one_line = " ".join(template.split("\n"))
    return (
        "do { static const emulator::Instruction* const emulated_instruction = "
        f"emulator::instruction({one_line}, {{__FILE__, __LINE__}}); "
        f"emulator::execute(emulated_instruction, {{{', '.join(operands)}}}); }} while (false)"
    ).replace("\n", " ")


def _expression(operand: str) -> str:
    """`(x)` of `"=r"(x)`."""
    return operand[operand.index("(", operand.index('"', 1)) :]
