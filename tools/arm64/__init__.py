"""CPU kernels compiled for arm64 and run by an emulator of that processor (QEMU), under the tests that they have
anyway:

    python -m pytest -p tools.arm64.plugin -p no:xdist tests/ops/cpu/test_linear.py tests/runtime/cpu

`ARM64=old` has one without dot products of bytes. Needs `qemu-aarch64` and `aarch64-linux-gnu-gcc` (Debian:
qemu-user, gcc-aarch64-linux-gnu). Numbers are those of the processor; how long anything takes says nothing.
"""
