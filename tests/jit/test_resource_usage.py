"""The assembler's report, as NVRTC 13.0 and 13.5 print it."""

import pytest

from pagedchat.jit.resource_usage import ResourceUsage, parse_usage, without_report

LOG_13_0 = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'spills' for 'sm_90a'
ptxas info    : Function properties for spills
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 33540 bytes smem
ptxas info    : Compile time = 1.000 ms
ptxas info    : Compiling entry function 'small' for 'sm_90a'
ptxas info    : Function properties for small
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers
"""
LOG_13_5 = LOG_13_0.replace("    16 bytes stack", "ptxas         .     16 bytes stack").replace(
    "    0 bytes stack", "ptxas         .     0 bytes stack"
)
WARNING = 'x.cu(3): warning #177-D: variable "i" was declared but never referenced'


@pytest.mark.parametrize("log", [LOG_13_0, LOG_13_5])
def test_every_entry_point_has_its_own_figures(log: str) -> None:
    spills, small = parse_usage(log)
    assert spills == ResourceUsage("spills", 255, 33540, 16, 8, 12)
    assert spills.spill_bytes == 20
    assert small == ResourceUsage("small", 14)


@pytest.mark.parametrize("log", [LOG_13_0, LOG_13_5])
def test_only_warnings_are_left_without_the_report(log: str) -> None:
    assert without_report(f"{WARNING}\n\n{log}\0") == WARNING
    assert without_report(log) == ""


def test_log_without_a_report_says_nothing() -> None:
    assert parse_usage("") == ()
