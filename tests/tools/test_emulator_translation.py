"""What becomes of CUDA's own words in the text of a kernel. Needs no compiler."""

import pytest

from tools.emulator.entries import find_entries
from tools.emulator.scan import closing, split
from tools.emulator.translate_asm import translate_asm
from tools.emulator.translate_shared import translate_shared


def test_brackets_in_strings_do_not_count() -> None:
    text = "f(\"[%0], (\", g(x), ')')"
    assert closing(text, 1) == len(text) - 1
    assert split('"a, b"(c, d), "e"(f[g, h])', ",") == ['"a, b"(c, d)', '"e"(f[g, h])']
    assert split(" ", ",") == []
    with pytest.raises(ValueError, match="nothing closes"):
        closing("(a[b)", 0)


def test_asm_becomes_a_call_with_operands_in_their_order() -> None:
    text = (
        'int y;\nasm volatile("add %0, %1, %2;"\n : "=r"(y)\n : "r"(f(a, b)), "n"(std::size)\n : "memory");\ng();'
    )
    translated = translate_asm(text)
    assert 'emulator::instruction("add %0, %1, %2;", {__FILE__, __LINE__})' in translated
    assert "{emulator::out(y), emulator::in(f(a, b)), emulator::in(std::size)}" in translated
    assert translated.count("\n") == text.count("\n")
    assert "asm" not in translated


def test_asm_without_results_or_operands() -> None:
    assert "emulated_instruction, {emulator::in(x)})" in translate_asm('asm("st %0;" ::"r"(x) : "memory");')
    assert "emulated_instruction, {})" in translate_asm('asm volatile("fence;");')


def test_shared_variables_of_a_function_become_references() -> None:
    text = "void f() { __shared__ float a[2][N], b; extern __shared__ __align__(16) unsigned char rest[]; }"
    translated = translate_shared(text)
    for made in (
        "using shared_type_100 = float[2][N]; shared_type_100& a = ",
        "emulator::shared_variable<shared_type_100, 100>();",
        "using shared_type_101 = float; shared_type_101& b = ",
        "using shared_type_200 = unsigned char[]; shared_type_200& rest = *static_cast<shared_type_200*>(",
    ):
        assert made in translated


def test_shared_variables_of_a_file_are_asked_for_where_they_are_used() -> None:
    text = "__shared__ Items<int> items;\nvoid f() { items.x = other.items + items_left; g(&items); }"
    translated = translate_shared(text)
    assert "inline shared_type_100& items_of_block() { return " in translated
    assert translated.endswith("{ items_of_block().x = other.items + items_left; g(&items_of_block()); }")


def test_what_is_no_variable_is_named() -> None:
    with pytest.raises(ValueError, match="not a variable in shared memory: x = 1"):
        translate_shared("void f() { __shared__ int x = 1; }")


def test_entry_points_are_found_behind_their_attributes() -> None:
    text = (
        'extern "C" __global__ void plain(int x) {}\n'
        'extern "C" __global__ void __cluster_dims__((2 * 4), 1, 1) __launch_bounds__(f(1), 2)\n  pairs(int x) {}\n'
        'extern "C" int other();'
    )
    assert [(entry.name, entry.cluster) for entry in find_entries(text)] == [("plain", "1"), ("pairs", "(2 * 4)")]
