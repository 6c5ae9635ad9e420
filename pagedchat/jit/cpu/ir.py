"""LLVM's IR as text, written from Python: values with operators, loops and branches as `with` blocks. Variables are
memory on the stack, which LLVM makes registers of. Knows no kernel and no processor.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

I1, I8, I16, I32, I64 = "i1", "i8", "i16", "i32", "i64"
HALF, BFLOAT, FLOAT, PTR, VOID = "half", "bfloat", "float", "ptr", "void"

Operand: TypeAlias = "Value | int | float"


def vector(lanes: int, element: str) -> str:
    """The type of that many elements side by side."""
    return f"<{lanes} x {element}>"


def element_of(kind: str) -> str:
    """The type of an element; of a scalar itself."""
    return kind.split(" x ")[1][:-1] if kind.startswith("<") else kind


def _is_float(kind: str) -> bool:
    return element_of(kind) in (HALF, BFLOAT, FLOAT)


def literal(kind: str, number: float) -> str:
    """A constant of a type; of a vector one with all elements alike."""
    element = element_of(kind)
    if element == FLOAT:  # as the bits of the double that it is
        rounded = struct.unpack("f", struct.pack("f", number))[0]
        text = f"0x{struct.unpack('Q', struct.pack('d', rounded))[0]:016X}"
    else:
        text = str(int(number))
    return f"splat ({element} {text})" if kind.startswith("<") else text


class Value:
    """Something computed, by its name; operators write the instruction that goes with its type."""

    def __init__(self, function: "Function", kind: str, name: str) -> None:
        self.function, self.kind, self.name = function, kind, name

    def _with(self, of_ints: str, of_floats: str, other: Operand) -> "Value":
        return self.function.binary(of_floats if _is_float(self.kind) else of_ints, self, other)

    def __add__(self, other: Operand) -> "Value":
        return self._with("add", "fadd", other)

    def __sub__(self, other: Operand) -> "Value":
        return self._with("sub", "fsub", other)

    def __mul__(self, other: Operand) -> "Value":
        return self._with("mul", "fmul", other)

    def __truediv__(self, other: Operand) -> "Value":
        return self._with("sdiv", "fdiv", other)

    def __floordiv__(self, other: Operand) -> "Value":
        return self.function.binary("udiv", self, other)

    def __mod__(self, other: Operand) -> "Value":
        return self.function.binary("urem", self, other)

    def __and__(self, other: Operand) -> "Value":
        return self.function.binary("and", self, other)

    def __or__(self, other: Operand) -> "Value":
        return self.function.binary("or", self, other)

    def __lshift__(self, other: Operand) -> "Value":
        return self.function.binary("shl", self, other)

    def __rshift__(self, other: Operand) -> "Value":
        """Zeros come in from above."""
        return self.function.binary("lshr", self, other)

    def __lt__(self, other: Operand) -> "Value":
        return self.function.compare("slt", "olt", self, other)

    def __le__(self, other: Operand) -> "Value":
        return self.function.compare("sle", "ole", self, other)

    def __ge__(self, other: Operand) -> "Value":
        return self.function.compare("sge", "oge", self, other)

    def equals(self, other: Operand) -> "Value":
        """Whether both are the same number."""
        return self.function.compare("eq", "oeq", self, other)

    def differs(self, other: Operand) -> "Value":
        """Whether they are not."""
        return self.function.compare("ne", "une", self, other)


class Variable:
    """A place on the stack."""

    def __init__(self, function: "Function", kind: str, name: str) -> None:
        self.function, self.kind, self.name = function, kind, name

    @property
    def value(self) -> Value:
        """What it holds now."""
        return self.function.assign(self.kind, f"load {self.kind}, ptr {self.name}")

    @value.setter
    def value(self, new: Operand) -> None:
        self.function.line(f"store {self.kind} {self.function.text(self.kind, new)}, ptr {self.name}")


class Function:
    """One function of a module, written line by line.

    Args:
        module: where it goes.
        name: its symbol.
        result: type of what it returns.
        parameters: name and type of each.
    """

    def __init__(self, module: "Module", name: str, result: str, parameters: Sequence[tuple[str, str]]) -> None:
        self._module, self.name, self._result = module, name, result
        self._parameters = list(parameters)
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    # --- lines ---

    def parameter(self, name: str) -> Value:
        """One of the parameters."""
        return Value(self, dict(self._parameters)[name], f"%{name}")

    def line(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}")

    def assign(self, kind: str, text: str) -> Value:
        """An instruction with one."""
        name = self._fresh()
        self.line(f"{name} = {text}")
        return Value(self, kind, name)

    def text(self, kind: str, operand: Operand) -> str:
        """An operand as it stands in a line."""
        return operand.name if isinstance(operand, Value) else literal(kind, operand)

    def variable(self, kind: str, start: "Operand | None" = None) -> Variable:
        """A new one; it exists once, however often a loop comes by, and is set anew each time."""
        name = self._fresh()
        self._entry.append(f"  {name} = alloca {kind}")
        made = Variable(self, kind, name)
        if start is not None:
            made.value = start
        return made

    def buffer(self, element: str, count: int) -> Value:
        """The address of so many elements on the stack, which begin on a cache line and hold anything."""
        name = self._fresh()
        self._entry.append(f"  {name} = alloca [{count} x {element}], align 64")
        return Value(self, PTR, name)

    def binary(self, operation: str, left: Value, right: Operand) -> Value:
        """Two operands of the same type."""
        return self.assign(left.kind, f"{operation} {left.kind} {left.name}, {self.text(left.kind, right)}")

    def compare(self, of_ints: str, of_floats: str, left: Value, right: Operand) -> Value:
        """-> i1, or as many of them."""
        how = f"fcmp {of_floats}" if _is_float(left.kind) else f"icmp {of_ints}"
        lanes = left.kind.split(" x ")[0] + " x i1>" if left.kind.startswith("<") else I1
        return self.assign(lanes, f"{how} {left.kind} {left.name}, {self.text(left.kind, right)}")

    def call(self, kind: str, name: str, arguments: Sequence[Value]) -> Value:
        """A call of a function that LLVM knows, with a result."""
        self._module.declare(kind, name, [each.kind for each in arguments])
        inside = ", ".join(f"{each.kind} {each.name}" for each in arguments)
        return self.assign(kind, f"call {kind} @{name}({inside})")

    def call_for_effect(self, name: str, arguments: Sequence[Value]) -> None:
        """One without a result."""
        self._module.declare(VOID, name, [each.kind for each in arguments])
        inside = ", ".join(f"{each.kind} {each.name}" for each in arguments)
        self.line(f"call void @{name}({inside})")

    def constant(self, kind: str, number: float) -> Value:
        """A number as a value."""
        return Value(self, kind, literal(kind, number))

    # --- conversions ---

    def convert(self, how: str, value: Value, kind: str) -> Value:
        """`how` is LLVM's word: sext, zext, trunc, sitofp, fptosi, fpext, fptrunc, bitcast, ptrtoint, inttoptr."""
        return self.assign(kind, f"{how} {value.kind} {value.name} to {kind}")

    def splat(self, value: Value, lanes: int) -> Value:
        """A vector whose elements are all `value`."""
        kind = vector(lanes, value.kind)
        first = self.assign(kind, f"insertelement {kind} poison, {value.kind} {value.name}, i32 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.assign(kind, f"shufflevector {kind} {first.name}, {kind} poison, {zeros}")

    def lanes(self, value: Value, indices: Sequence[int], other: Value | None = None) -> Value:
        """A vector of the elements with these indices; those of `other` come behind those of `value`."""
        kind = vector(len(indices), element_of(value.kind))
        second = "poison" if other is None else other.name
        mask = ", ".join(f"i32 {index}" for index in indices)
        return self.assign(
            kind, f"shufflevector {value.kind} {value.name}, {value.kind} {second}, <{len(indices)} x i32> <{mask}>"
        )

    def lane(self, value: Value, index: int) -> Value:
        """One element."""
        return self.assign(element_of(value.kind), f"extractelement {value.kind} {value.name}, i32 {index}")

    def choose(self, condition: Value, yes: Operand, no: Operand, kind: str) -> Value:
        """`yes` where the condition holds."""
        return self.assign(
            kind,
            f"select {condition.kind} {condition.name}, {kind} {self.text(kind, yes)}, "
            f"{kind} {self.text(kind, no)}",
        )

    # --- memory ---

    def at(self, base: Value, index: Operand, element: str) -> Value:
        """The address of an element."""
        return self.assign(PTR, f"getelementptr {element}, ptr {base.name}, i64 {self.text(I64, index)}")

    def load(self, kind: str, address: Value, *, aligned: int = 1) -> Value:
        """What is at an address."""
        return self.assign(kind, f"load {kind}, ptr {address.name}, align {aligned}")

    def store(self, value: Value, address: Value, *, aligned: int = 1) -> None:
        """Put it there."""
        self.line(f"store {value.kind} {value.name}, ptr {address.name}, align {aligned}")

    def change(self, how: str, address: Value, by: Operand) -> None:
        """Add to an i64, or subtract from it, as no other thread may between reading and writing."""
        self.line(f"{self._fresh()} = atomicrmw {how} ptr {address.name}, i64 {self.text(I64, by)} seq_cst")

    def load_some(self, kind: str, address: Value, mask: Value) -> Value:
        """Elements where the mask says so, zeros elsewhere, of which the memory is not touched."""
        name = f"llvm.masked.load.{_suffix(kind)}.p0"
        self._module.declare(kind, name, [PTR, mask.kind, kind])
        zeros = f"{kind} zeroinitializer"
        return self.assign(
            kind, f"call {kind} @{name}(ptr align 1 {address.name}, {mask.kind} {mask.name}, {zeros})"
        )

    def store_some(self, value: Value, address: Value, mask: Value) -> None:
        """Elements where the mask says so."""
        name = f"llvm.masked.store.{_suffix(value.kind)}.p0"
        self._module.declare(VOID, name, [value.kind, PTR, mask.kind])
        self.line(
            f"call void @{name}({value.kind} {value.name}, ptr align 1 {address.name}, {mask.kind} {mask.name})"
        )

    def fetch_soon(self, address: Value) -> None:
        """Have the line of an address brought near; whether it exists does not matter."""
        self._module.declare(VOID, "llvm.prefetch.p0", [PTR, I32, I32, I32])
        self.line(f"call void @llvm.prefetch.p0(ptr {address.name}, i32 0, i32 2, i32 1)")

    def first_lanes(self, count: Value, lanes: int) -> Value:
        """A mask of the first `count` lanes; `count` is an i64."""
        kind = vector(lanes, I32)
        numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
        wanted = self.splat(self.convert("trunc", count, I32), lanes)
        return self.assign(vector(lanes, I1), f"icmp slt {kind} <{numbers}>, {wanted.name}")

    def unlike(self, mask: Value) -> Value:
        """A mask of the other lanes."""
        return self.assign(mask.kind, f"xor {mask.kind} {mask.name}, splat (i1 true)")

    # --- arithmetic ---

    def fma(self, left: Value, right: Value, added: Value) -> Value:
        """`left * right + added`, rounded once."""
        return self.call(left.kind, f"llvm.fma.{_suffix(left.kind)}", [left, right, added])

    def largest(self, left: Value, right: Value) -> Value:
        """Of floats."""
        return self.call(left.kind, f"llvm.maxnum.{_suffix(left.kind)}", [left, right])

    def magnitude(self, value: Value) -> Value:
        """Of whole numbers; the lowest one stays as it is, which without a sign is right."""
        name = f"llvm.abs.{_suffix(value.kind)}"
        self._module.declare(value.kind, name, [value.kind, I1])
        return self.assign(value.kind, f"call {value.kind} @{name}({value.kind} {value.name}, i1 false)")

    def unary(self, name: str, value: Value) -> Value:
        """One of LLVM's functions of a float: fabs, sqrt, rint, floor."""
        return self.call(value.kind, f"llvm.{name}.{_suffix(value.kind)}", [value])

    def folded(self, value: Value, lanes: int, how: str = "sum") -> Value:
        """Sum or largest of all elements, always in the same order: halves onto each other."""
        while lanes > 1:
            lanes //= 2
            low, high = self.lanes(value, range(lanes)), self.lanes(value, range(lanes, 2 * lanes))
            value = low + high if how == "sum" else self.largest(low, high)
        return self.lane(value, 0)

    # --- control ---

    @contextmanager
    def loop(self, start: Operand, stop: Operand, step: Operand = 1) -> Iterator[Value]:
        """For i64s from `start` to below `stop`."""
        index = self.variable(I64, start)
        head, body, end = self._label("head"), self._label("body"), self._label("end")
        self.line(f"br label %{head}")
        self._place(head)
        now = index.value
        go_on = now < stop
        self.line(f"br i1 {go_on.name}, label %{body}, label %{end}")
        self._place(body)
        yield now
        index.value = now + step
        self.line(f"br label %{head}")
        self._place(end)

    @contextmanager
    def forever(self) -> Iterator[str]:
        """A loop that is left by `leave`, which takes what this yields."""
        head, end = self._label("head"), self._label("end")
        self.line(f"br label %{head}")
        self._place(head)
        yield end
        self.line(f"br label %{head}")
        self._place(end)

    def leave(self, end: str, condition: Value | None = None) -> None:
        """Out of a loop, if the condition holds."""
        after = self._label("on")
        if condition is None:
            self.line(f"br label %{end}")
        else:
            self.line(f"br i1 {condition.name}, label %{end}, label %{after}")
        self._place(after)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Only if the condition holds."""
        yes, end = self._label("yes"), self._label("end")
        self.line(f"br i1 {condition.name}, label %{yes}, label %{end}")
        self._place(yes)
        yield
        self.line(f"br label %{end}")
        self._place(end)

    def finish(self, result: Value | None = None) -> None:
        """The end of the function, which then stands in the module."""
        self.line("ret void" if result is None else f"ret {result.kind} {result.name}")
        inside = ", ".join(f"{kind} %{name}" for name, kind in self._parameters)
        # Without builtins no loop becomes a call of the C library's memset, which nothing here links with.
        head = f'define {self._result} @{self.name}({inside}) nounwind "no-builtins" {{'
        self._module.add("\n".join([head, "entry:", *self._entry, *self._lines, "}"]))

    def _fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def _label(self, name: str) -> str:
        self._count += 1
        return f"{name}{self._count}"

    def _place(self, label: str) -> None:
        self._lines.append(f"{label}:")


class Module:
    """Functions that are compiled together."""

    def __init__(self) -> None:
        self._declared: dict[str, str] = {}
        self._functions: list[str] = []

    def declare(self, kind: str, name: str, arguments: Sequence[str]) -> None:
        """A function of LLVM's that is called."""
        constant = {"llvm.prefetch.p0": (1, 2, 3), "llvm.aarch64.hint": (0,), "llvm.abs.v32i8": (1,)}.get(name, ())
        listed = (f"{each} immarg" if i in constant else each for i, each in enumerate(arguments))
        self._declared[name] = f"declare {kind} @{name}({', '.join(listed)})"

    def function(self, name: str, parameters: Sequence[tuple[str, str]], result: str = VOID) -> Function:
        """A new one; it is there once it is finished."""
        return Function(self, name, result, parameters)

    def add(self, text: str) -> None:
        """A finished function."""
        self._functions.append(text)

    def __str__(self) -> str:
        return "\n".join([*(self._declared[name] for name in sorted(self._declared)), *self._functions, ""])


def _suffix(kind: str) -> str:
    """What LLVM calls a type in the names of its functions."""
    short = {HALF: "f16", FLOAT: "f32"}.get(element_of(kind), element_of(kind))
    return f"v{kind[1:].split(' x ', maxsplit=1)[0]}{short}" if kind.startswith("<") else short
