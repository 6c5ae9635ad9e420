from pagedchat.jit.architecture import ARCHITECTURES, architecture_of, compiler_target
from pagedchat.jit.variant import Variant


def test_order_of_constants_does_not_matter() -> None:
    assert Variant.of("k", A=1, B="x") == Variant.of("k", B="x", A=1)
    assert hash(Variant.of("k", A=1, B="x")) == hash(Variant.of("k", B="x", A=1))


def test_flags_become_numbers() -> None:
    assert Variant.of("k", ALIBI=True, SOFT_CAP=False).constants == {"ALIBI": "1", "SOFT_CAP": "0"}


def test_variant_reads_as_file_and_constants() -> None:
    assert str(Variant.of("copy_blocks", HEAD_SIZE=64, ELEMENT="float16")) == (
        "copy_blocks ELEMENT=float16 HEAD_SIZE=64"
    )
    assert str(Variant.of("copy_blocks")) == "copy_blocks"


def test_architectures_with_instructions_of_their_own_are_compiled_for_exactly() -> None:
    targets = [compiler_target(name) for name in ARCHITECTURES]
    assert targets == ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"]
    assert architecture_of(9, 0) == "sm_90"
    assert architecture_of(12, 0) == "sm_120"
