"""Tests of the command line have an empty standard input, whatever they were started with."""

import io

import pytest


@pytest.fixture(autouse=True)
def empty_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
