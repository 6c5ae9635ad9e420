"""What is published: a source archive, the wheel built from it, and the program as it is then installed."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import pagedchat

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
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source archive."""
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the wheel, where nothing else of the project is."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of a new virtual environment in which pip has installed the wheel. What it depends on is that of these
    tests: installing it again would need a network, and minutes."""
    home = tmp_path_factory.mktemp("home")
    run(home, sys.executable, "-m", "venv", "--without-pip", str(home / "venv"))
    programs = home / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python")]
    run(home, *pip, "install", "--no-index", "--no-deps", str(wheel))
    site = run(home, str(programs / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    (Path(site.strip()) / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return programs


def run(folder: Path, *command: str) -> str:
    """What a command prints that runs in `folder` and is told of no other Python code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_source_archive_has_what_the_tests_need(source: Path) -> None:
    for name in (
        "tests",
        "tools",
        "kernels",
        "assets",
        "Makefile",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "requirements.lock",
    ):
        assert (source / name).exists(), name


def test_wheel_carries_styles_kernels_and_assets(unpacked: Path) -> None:
    package = unpacked / "pagedchat"
    for name in ("py.typed", "tui/app.tcss", "_data/kernels/README.md", "_data/assets/README.md"):
        assert (package / name).is_file(), name


def test_wheel_carries_the_model_with_its_card_and_credits(unpacked: Path) -> None:
    def sizes(folder: Path) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in folder.iterdir()}

    model = sizes(unpacked / "pagedchat" / "_data" / "assets" / "model")
    assert model == sizes(ROOT / "assets" / "model")
    assert {"model.safetensors", "tokenizer.json", "README.md", "NOTICE"} <= model.keys()


def test_wheel_has_every_file_of_the_package(unpacked: Path) -> None:
    def files(root: Path) -> set[Path]:
        return {path.relative_to(root) for path in root.rglob("*") if path.suffix in (".py", ".tcss")}

    assert files(ROOT / "pagedchat") == files(unpacked / "pagedchat")


def test_wheel_brings_nothing_but_the_package(unpacked: Path) -> None:
    assert {path.name.partition("-")[0] for path in unpacked.iterdir()} == {"pagedchat"}


def test_installed_program_is_the_wheels(programs: Path) -> None:
    program = "from pagedchat.resources import resource_dir; print(resource_dir('kernels'), resource_dir('assets'))"
    kernels, assets = map(Path, run(programs, "./python", "-c", program).split())
    assert (kernels.name, assets.name) == ("kernels", "assets")
    for folder in (kernels, assets):
        assert folder.parts[-3:-1] == ("pagedchat", "_data")
        assert folder.is_relative_to(programs.parent)


def test_installed_program_starts(programs: Path) -> None:
    assert run(programs, "./pagedchat", "--version") == f"pagedchat {pagedchat.__version__}\n"


def test_installed_program_answers_without_a_network(programs: Path) -> None:
    reply = run(programs, "./pagedchat", "-p", "What is the capital of France?", "--temperature", "0")
    assert "Paris" in reply
