"""requirements.lock and pyproject.toml agree, and nothing in the lock can be swapped for something else."""

import re
import tomllib
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PLACES = [
    {
        "sys_platform": system,
        "platform_machine": machine,
        "python_version": version,
        "python_full_version": f"{version}.9",
    }
    for (system, machine), version in product(
        [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")], ["3.11", "3.12", "3.13"]
    )
]
"""Where the program is meant to run."""


def locked() -> dict[Requirement, list[str]]:
    """What each entry of the lock asks for, with its options."""
    lines = "\n".join(line for line in LOCK.splitlines() if not line.lstrip().startswith("#"))
    entries = [entry.split() for entry in lines.replace("\\\n", " ").splitlines()]
    return {
        Requirement(" ".join(word for word in entry if not word.startswith("--"))): [
            word for word in entry if word.startswith("--")
        ]
        for entry in entries
    }


def pins(name: str, place: dict[str, str]) -> list[Requirement]:
    """The entries of the lock that are for this package in this place."""
    return [
        entry
        for entry in locked()
        if canonicalize_name(entry.name) == canonicalize_name(name)
        and (entry.marker is None or entry.marker.evaluate(place))
    ]


def version(pin: Requirement) -> str:
    return str(pin.specifier).removeprefix("==")


@pytest.mark.parametrize("dependency", [*map(Requirement, PROJECT["dependencies"])], ids=lambda found: found.name)
def test_every_dependency_is_locked_within_its_range_wherever_it_is_wanted(dependency: Requirement) -> None:
    for place in PLACES:
        if dependency.marker is None or dependency.marker.evaluate(place):
            [pin] = pins(dependency.name, place)
            assert dependency.specifier.contains(version(pin)), place


def test_every_entry_is_one_version_of_the_index_with_its_hashes() -> None:
    assert locked()
    for pin, options in locked().items():
        assert pin.url is None, pin
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), (
            f"{pin}: one version, none that somebody built for himself"
        )
        assert options, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option) for option in options), pin


def test_the_lock_names_no_place_to_fetch_from() -> None:
    assert "://" not in LOCK
    assert not re.search(r"^-", LOCK, re.MULTILINE)


def test_every_python_that_the_lock_is_for_is_one_that_the_program_runs_on() -> None:
    versions = {place["python_version"] for place in PLACES}
    named = [line.removeprefix("Programming Language :: Python :: ") for line in PROJECT["classifiers"]]
    assert versions == {line for line in named if re.fullmatch(r"3\.\d+", line)}
    assert PROJECT["requires-python"] == f">={min(versions)}"
