"""Mutation testing of the engine: its table, and what it makes of functions with decorators."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tools.mutants import report


def test_mutants_are_counted_file_by_file(tmp_path: Path) -> None:
    for name, codes in {
        "batch": {"a": 1, "b": 0, "c": 36, "d": None},
        "mirror": {"e": 33, "f": 1, "g": -9, "h": 5},
        "output": {},
    }.items():
        (tmp_path / f"{name}.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    results = report.read(tmp_path)
    assert results == {
        "batch.py": Counter(killed=2, survived=1),
        "mirror.py": Counter(killed=2, untested=2),
    }
    assert report.score(results) == pytest.approx(100 * 4 / 7)
    head, *lines = report.table(results).splitlines()
    assert head.split() == ["file", "mutants", "killed", "survived", "untested", "score"]
    assert [line.split() for line in lines] == [
        ["batch.py", "3", "2", "1", "0", "66.7", "%"],
        ["mirror.py", "4", "2", "0", "2", "50.0", "%"],
        ["all", "7", "4", "1", "2", "57.1", "%"],
    ]


def test_where_there_is_nothing_to_kill_nothing_survives(tmp_path: Path) -> None:
    assert report.score(report.read(tmp_path)) == 100.0


SOURCE = """
class Fold:
    @property
    def size(self):
        return 1

    @fold.register
    def _(self, event: ev.Opened):
        return 2

    @fold.register
    def _(self, event: ev.Closed):
        return 3

    @cached(4)
    def other(self):
        return 5
"""


def test_properties_and_methods_chosen_by_type_have_mutants_and_keep_their_decorators() -> None:
    pytest.importorskip("mutmut")
    from mutmut.mutation.file_mutation import mutate_file_contents

    from tools.mutants import decorated

    with pytest.MonkeyPatch.context() as patch:
        decorated.allow(patch.setattr)
        mutated = mutate_file_contents("fold.py", SOURCE)
    assert list(mutated.mutant_names) == [f"xǁFoldǁ{name}__mutmut_1" for name in ("size", "ev_Opened", "ev_Closed")]
    assert mutated.code.count("@property") == 1
    assert mutated.code.count("@fold.register") == 2
    assert mutated.code.count("def _(self") == 2
    compile(mutated.code, "fold.py", "exec")
