"""How variants follow from what is declared of a kernel file."""

from pagedchat.jit.kernel_file import KernelFile, Limit, Tuning, Use

FILE = KernelFile(
    "k",
    ("k",),
    Use.ANY_MODEL,
    {"A": (1, 2, 3), "B": (1, 2, 3), "HEAD_SIZE": (64, 80, 96, 256)},
    (Tuning({"W": 4}, {"HEAD_SIZE": (64, 80, 96)}), Tuning({"W": 8})),
    (
        Limit("old", frozenset({"sm_75"}), where={"A": [1]}),
        Limit("Hopper", frozenset({"sm_90"}), but=True, where={"B": [3], "W": [4]}),
    ),
)


def test_constants_with_equally_many_values_meet_different_partners() -> None:
    pairs = {(v.constants["A"], v.constants["B"]) for v in FILE.covering("sm_90")}
    assert len({(int(a) - int(b)) % 3 for a, b in pairs}) > 1


def test_tuning_goes_only_with_what_it_is_for() -> None:
    variants = [*FILE.covering("sm_90"), *FILE.variants("sm_90")]
    assert {v.constants["W"] for v in variants if v.constants["HEAD_SIZE"] == "256"} == {"8"}
    assert {v.constants["W"] for v in variants} == {"4", "8"}


def test_limit_forbids_on_its_architectures_or_on_all_others() -> None:
    assert FILE.why_not({"A": 1, "B": 1}, "sm_75") == "old"
    assert FILE.why_not({"A": 1, "B": 1}, "sm_80") == ""
    assert FILE.why_not({"A": 2, "B": 3, "W": 4}, "sm_80") == "Hopper"
    assert FILE.why_not({"A": 2, "B": 3, "W": 8}, "sm_80") == ""
    assert FILE.why_not({"A": 2, "B": 3, "W": 4}, "sm_90") == ""
    assert "1" not in {v.constants["A"] for v in [*FILE.covering("sm_75"), *FILE.variants("sm_75")]}
    assert {v.constants["W"] for v in FILE.variants("sm_80", A=2, B=3)} == {"8"}


def test_known_constants_leave_the_others_open() -> None:
    variants = list(FILE.variants("sm_80", A=1, HEAD_SIZE=64, UNKNOWN=7))
    assert len(variants) == len(set(variants)) == 2 * 2 + 1
    assert {v.constants["A"] for v in variants} == {"1"}
