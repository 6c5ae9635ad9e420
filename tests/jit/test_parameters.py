from pathlib import Path

import pytest

from pagedchat.jit.architecture import ARCHITECTURES
from pagedchat.jit.parameters import cubin_parameters
from pagedchat.jit.variant import Variant
from tests.jit.kernels import SCALE_BY_2, builder_in

STRUCTS = """\
struct Big { char bytes[128]; };
extern "C" __global__ void structs(char a, Big big, short b, double* out) { *out = a + b + big.bytes[3]; }
extern "C" __global__ void nothing() {}
"""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_says_where_parameters_lie(architecture: str, root: Path) -> None:
    (root / "kernels" / "structs.cu").write_text(STRUCTS)
    builder = builder_in(root)
    scale = builder.build(SCALE_BY_2, architecture).cubin
    structs = builder.build(Variant.of("structs"), architecture).cubin
    assert scale is not None
    assert structs is not None
    assert cubin_parameters(scale.code, "scale") == [(0, 8), (8, 8), (16, 8), (24, 4), (28, 4)]
    assert cubin_parameters(structs.code, "structs") == [(0, 1), (1, 128), (130, 2), (136, 8)]
    assert cubin_parameters(structs.code, "nothing") == []
    assert cubin_parameters(structs.code, "struct") == []
