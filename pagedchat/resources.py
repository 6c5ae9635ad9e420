"""Where the files that are not code lie: `kernels/` and `assets/`, in a checkout and in an install alike."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_dir(name: str) -> Path:
    """The folder `name` ("kernels" or "assets").

    An installed wheel keeps both inside the package (`pagedchat/_data/`); a checkout has them beside it.

    Raises:
        FileNotFoundError: neither place has it; the install is broken.
    """
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"pagedchat was installed without its {name!r} folder")
