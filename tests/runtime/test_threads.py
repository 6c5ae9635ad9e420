import os

import pytest

from pagedchat.runtime.threads import spin_briefly


@pytest.mark.parametrize("set_by_user", [None, "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_threads_spin_briefly_unless_the_user_says_otherwise(monkeypatch, set_by_user):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    if set_by_user:
        monkeypatch.setenv(set_by_user, "7")
    spin_briefly()

    assert (
        os.environ.get("GOMP_SPINCOUNT")
        == {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": "7", None: "3000"}[set_by_user]
    )
