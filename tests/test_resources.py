from pathlib import Path

import pytest

from pagedchat import resources


@pytest.mark.parametrize("name", ["kernels", "assets"])
def test_checkout_has_its_folders_beside_the_package(name: str) -> None:
    folder = resources.resource_dir(name)
    assert folder == Path(resources.__file__).parents[1] / name
    assert (folder / "README.md").is_file()


def test_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "pagedchat"
    (package / "_data" / "kernels").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.resource_dir("kernels") == package / "_data" / "kernels"


def test_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "pagedchat")
    with pytest.raises(FileNotFoundError, match="'kernels'"):
        resources.resource_dir("kernels")
