"""The file in which a start leaves what was wrong of its captured steps: it is read and shown, or nobody has it."""

import json

import msgspec
from hypothesis import strategies as st

from pagedchat.doctor.model_text import check_lines
from pagedchat.runtime.loading.check_record import CheckRecord, read_record
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.structs import values_of
from tools.fuzz.target import Target

_RECORD = {"when": 1.76e9, "left_out": [{"what": "Steps", "kind": "fused chain", "off": "0.3"}]}
_NUMBERS = any_of([0, -1, 1e300, -1e300, 253_402_214_400, 253_402_214_401, 2**63])


def _check(content: bytes) -> None:
    found = read_record(content)
    if found is not None:
        assert len(check_lines(found)) == 1 + len(found.left_out) > 1


TARGETS = (
    Target(
        "checks",
        bent(_RECORD, _NUMBERS).map(lambda tree: json.dumps(tree).encode())
        | values_of(CheckRecord).map(msgspec.json.encode)
        | st.binary(max_size=40),
        _check,
    ),
)
