import sys
from pathlib import Path

import pytest

from pagedchat.errors import KernelError
from pagedchat.jit.toolchain import find_toolchain

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CUDA's packages are for Linux")


def test_compiler_and_headers_of_the_wheels_are_found() -> None:
    found = find_toolchain()
    assert found.nvrtc_path.is_file()
    assert found.nvrtc_bytes == found.nvrtc_path.stat().st_size
    assert (found.headers / "cuda_fp16.h").is_file()
    assert tuple(map(int, found.nvrtc_version.split("."))) >= (13, 0)
    assert tuple(map(int, found.headers_version.split("."))) >= (13, 0)


def test_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda import pathfinder

    def missing(name: str) -> None:
        raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    with pytest.raises(KernelError) as caught:
        find_toolchain()
    assert str(caught.value) == (
        'NVRTC, the compiler of the CUDA kernels, was not found. Install it: pip install "nvidia-cuda-nvrtc>=13.0"'
    )


def test_missing_headers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda import pathfinder

    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda _name: None)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    with pytest.raises(KernelError) as caught:
        find_toolchain()
    assert str(caught.value) == (
        "CUDA's headers (cuda_fp16.h) were not found. "
        'Install them: pip install "nvidia-cuda-runtime>=13.0", or set CUDA_HOME to a CUDA toolkit.'
    )


def test_headers_of_a_toolkit_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cuda import pathfinder

    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda _name: None)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_fp16.h").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = find_toolchain()
    assert (found.headers, found.headers_version) == (tmp_path / "include", "unknown")
    (tmp_path / "include" / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  13010\n")
    assert find_toolchain().headers_version == "13.1"
