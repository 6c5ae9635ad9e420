"""What is published: a source archive, the wheel built from it, and the program as it is then installed."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(kind: str, source: Path, target: Path) -> Path:
    """Build the project in `source` with its own backend; returns the archive in `target`."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [archive] = target.iterdir()
    return archive


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, unpacked."""
    archive = build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    [top] = folder.iterdir()
    return top


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the source archive, unpacked where nothing else of the project is."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(build("wheel", source, tmp_path_factory.mktemp("wheel"))) as wheel:
        wheel.extractall(folder)
    return folder


def run_installed(installed: Path, *arguments: str) -> str:
    environment = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    result = subprocess.run(
        [sys.executable, *arguments], cwd=installed, env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout


def test_source_archive_has_what_the_tests_need(source: Path) -> None:
    for name in ("tests", "tools", "kernels", "assets", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"):
        assert (source / name).exists(), name


def test_wheel_carries_styles_kernels_and_assets(installed: Path) -> None:
    package = installed / "pagedchat"
    for name in ("py.typed", "tui/app.tcss", "_data/kernels/README.md", "_data/assets/README.md"):
        assert (package / name).is_file(), name


def test_wheel_carries_the_model_with_its_card_and_credits(installed: Path) -> None:
    def sizes(folder: Path) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in folder.iterdir()}

    model = sizes(installed / "pagedchat" / "_data" / "assets" / "model")
    assert model == sizes(ROOT / "assets" / "model")
    assert {"model.safetensors", "tokenizer.json", "README.md", "NOTICE"} <= model.keys()


def test_wheel_has_every_file_of_the_package(installed: Path) -> None:
    def files(root: Path) -> set[Path]:
        return {path.relative_to(root) for path in root.rglob("*") if path.suffix in (".py", ".tcss")}

    assert files(ROOT / "pagedchat") == files(installed / "pagedchat")


def test_wheel_brings_nothing_but_the_package(installed: Path) -> None:
    assert {path.name.partition("-")[0] for path in installed.iterdir()} == {"pagedchat"}


def test_installed_program_finds_its_folders(installed: Path) -> None:
    program = "from pagedchat.resources import resource_dir; print(resource_dir('kernels'), resource_dir('assets'))"
    kernels, assets = run_installed(installed, "-c", program).split()
    assert Path(kernels) == installed / "pagedchat" / "_data" / "kernels"
    assert Path(assets) == installed / "pagedchat" / "_data" / "assets"


def test_installed_program_answers_without_a_network(installed: Path) -> None:
    reply = run_installed(
        installed, "-m", "pagedchat", "-p", "What is the capital of France?", "--temperature", "0"
    )
    assert "Paris" in reply


def test_installed_program_starts(installed: Path) -> None:
    assert run_installed(installed, "-m", "pagedchat", "--version").startswith("pagedchat ")
