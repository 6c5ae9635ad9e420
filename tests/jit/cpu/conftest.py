"""LLVM is not everywhere."""

import pytest

pytest.importorskip("llvmlite")
