"""How the tests run against mutants: the same every time, what is exact and quick before what is random and long.

mutmut runs the tests that took least time first, but does not see what fixtures take. Random tests need not find
the smallest case that fails: one is enough.
"""

import os

import pytest
from hypothesis import Phase, settings

LONG = ("test_properties.py", "test_random_walk.py")
"""The last ones, in this order."""
os.environ.setdefault("PAGEDCHAT_WALK_STEPS", "1000")

settings.register_profile(
    "mutants", derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate]
)


def pytest_configure() -> None:
    """After the tests have loaded a profile of their own."""
    settings.load_profile("mutants")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones last; the others stay as they are."""
    items.sort(key=lambda item: (*LONG, "").index(item.path.name) if item.path.name in LONG else -1)
