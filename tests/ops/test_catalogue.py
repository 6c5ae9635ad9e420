import re

import pytest

from pagedchat.jit.architecture import ARCHITECTURES
from pagedchat.jit.kernel_file import KernelFile
from pagedchat.jit.source import kernel_path, read_source
from pagedchat.jit.variant import Variant
from pagedchat.ops.catalogue import CATALOGUE, covering_set, variants_for_model
from pagedchat.resources import resource_dir

KERNELS = resource_dir("kernels")
LAUNCH_BOUNDS = r"__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*"
ENTRY = re.compile(rf'extern "C" __global__ void\s+(?:IN_CLUSTERS\s+)?(?:{LAUNCH_BOUNDS})?(\w+)\(')
MOST_VARIANTS = 6
FILES = pytest.mark.parametrize("file", CATALOGUE, ids=lambda file: file.stem)


def test_every_kernel_file_is_in_the_catalogue() -> None:
    assert sorted(file.stem for file in CATALOGUE) == sorted(path.stem for path in KERNELS.rglob("*.cu"))


@FILES
def test_entry_points_are_those_of_the_file(file: KernelFile) -> None:
    assert sorted(file.entries) == sorted(ENTRY.findall(kernel_path(KERNELS, file.stem).read_text()))


@FILES
def test_constants_are_used_by_the_file_or_its_headers(file: KernelFile) -> None:
    source = read_source(KERNELS, file.stem)
    words = set(re.findall(r"\w+", " ".join([source.text, *source.headers.values()])))
    named = {*file.constants, *(name for tuning in file.tunings for name in tuning.constants)}
    assert named <= words


@FILES
def test_covering_set_is_small_and_has_every_value_somewhere(file: KernelFile) -> None:
    everywhere = set()
    for architecture in ARCHITECTURES:
        variants = file.covering(architecture)
        assert len(variants) == len(set(variants)) <= MOST_VARIANTS
        everywhere.update(variants)
    for name, values in file.constants.items():
        assert {variant.constants[name] for variant in everywhere} == {str(value) for value in values}
    for tuning in file.tunings:
        wanted = Variant.of("", **tuning.constants).constants.items()
        assert any(variant.constants.items() >= wanted for variant in everywhere)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@FILES
def test_where_nothing_is_missing_the_covering_set_has_every_value(file: KernelFile, architecture: str) -> None:
    needs_hopper = (
        "prefill_wgmma", "warpgroup_linear", "stream_k_linear", "cluster_linear", "wide_gates",
        "expert_warpgroups",
        "few_bits_warpgroups", "screen_", "choose_screened", "list_screened",
        "persistent_decode", "streamed",
    )  # fmt: skip
    if architecture != "sm_90" and file.stem.startswith(needs_hopper):
        return
    variants = file.covering(architecture)
    for name, values in file.constants.items():
        assert {variant.constants[name] for variant in variants} == {str(value) for value in values}


def test_what_an_architecture_cannot_do_is_left_out_with_a_reason() -> None:
    for architecture in ARCHITECTURES:
        stems = {variant.stem for variant in covering_set(architecture)}
        assert ("prefill_wgmma" in stems) == ("warpgroup_linear" in stems) == (architecture == "sm_90")
    split = next(file for file in CATALOGUE if file.stem == "decode_split")
    assert "sm_80" in split.why_not({"ELEMENT": "bfloat16"}, "sm_75")
    assert split.why_not({"ELEMENT": "float16"}, "sm_75") == ""
    assert split.why_not({"ELEMENT": "bfloat16"}, "sm_80") == ""


@pytest.mark.parametrize(
    ("element", "architecture", "tensor_cores"),
    [
        ("float16", "sm_75", True),
        ("bfloat16", "sm_75", False),
        ("bfloat16", "sm_90", True),
        ("float32", "sm_90", False),
    ],
)
def test_model_gets_the_kernels_of_its_type(element: str, architecture: str, tensor_cores: bool) -> None:
    variants = variants_for_model(element, 64, 16, 4, architecture)
    stems = {variant.stem for variant in variants}
    assert ("decode_split" in stems) == tensor_cores
    assert ("decode_simt" in stems) != tensor_cores
    assert ("prefill_wgmma" in stems) == (architecture == "sm_90" and tensor_cores)
    assert {"reshape_and_cache", "copy_blocks", "swap_blocks"} <= stems


def test_model_gets_its_own_constants() -> None:
    for variant in variants_for_model("float16", 80, 32, 5, "sm_90", soft_cap=True, sinks=True):
        wanted = {"ELEMENT": "float16", "HEAD_SIZE": "80", "BLOCK_SIZE": "32", "GROUP_SIZE": "5"}
        wanted |= {"SOFT_CAP": "1", "ALIBI": "0", "SINKS": "1"}
        assert {
            name: value for name, value in variant.constants.items() if name in wanted
        }.items() <= wanted.items()
