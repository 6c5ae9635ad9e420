"""pytest with kernels on the CPU, as people start it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tools.emulator_case import needs_compiler

ROOT = Path(__file__).parents[2]
TEST = """
from pagedchat.ops.products import activate
import torch

def test_kernels_run():
    assert activate.on_cuda(torch.zeros(1))
    rows = torch.randn(3, 32).half()
    gate, value = rows.float().chunk(2, dim=1)
    found = activate.activate(rows, "silu", paired=True)
    assert (found - gate * gate.sigmoid() * value).abs().max() < 4e-3
    constants = {"ELEMENT": "float16", "ACTIVATION": 2, "PAIRED": 1}
    assert activate.get_kernel("activate", 0, "activate_rows", **constants).num_launches == 1
    assert torch.empty(1000).isnan().all()
"""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_silu.py").write_text(TEST, encoding="utf-8")
    command = [sys.executable, "-m", "tools.emulator", *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@needs_compiler
def test_ops_of_a_test_launch_their_kernels(tmp_path: Path) -> None:
    options = ("--emulator-seed", "2", "--fence", "behind")
    result = run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path), *options)
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout


def test_a_missing_compiler_is_said(tmp_path: Path) -> None:
    result = run(tmp_path, "pytest", "-q", str(tmp_path), CXX="no-such-compiler")
    assert result.returncode != 0
    assert "The kernel emulator" in result.stderr
    assert "Traceback" not in result.stderr


def test_it_only_starts_pytest(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 2
    assert "python -m tools.emulator pytest" in result.stderr
