"""How the parameters of a kernel lie, read from its cubin. Asks no driver.

A cubin is an ELF file; the compiler leaves one record for each parameter in the section `.nv.info.{entry}`. The
driver tells the same, but for the count it must be asked until it fails, which memory checkers report as an error.
"""

import struct
from collections.abc import Iterator

_SECTION_TABLE = struct.Struct("<Q")
_SECTION_COUNTS = struct.Struct("<HHH")
_SECTION = struct.Struct("<IIQQQQ")
_RECORD = struct.Struct("<BBH")
_PARAMETER = struct.Struct("<IHHI")
_HAS_CONTENT = 4
"""Form of a record whose last field is the size of what follows; that of others is a value."""
_IS_PARAMETER = 0x17
_SIZE_SHIFT = 18


def cubin_parameters(code: bytes, entry: str) -> list[tuple[int, int]]:
    """`(offset, bytes)` of every parameter of `entry`, in order; empty where the cubin does not say."""
    found = {}
    for kind, content in _records(_section(code, f".nv.info.{entry}")):
        if kind == _IS_PARAMETER:
            _, position, offset, bits = _PARAMETER.unpack(content)
            found[position] = (offset, bits >> _SIZE_SHIFT)
    return [found[position] for position in sorted(found)]


def _section(code: bytes, name: str) -> bytes:
    """The content of a section of an ELF file; empty if there is none of that name."""
    (table,) = _SECTION_TABLE.unpack_from(code, 0x28)
    entry_bytes, count, names_index = _SECTION_COUNTS.unpack_from(code, 0x3A)
    sections = [_SECTION.unpack_from(code, table + i * entry_bytes) for i in range(count)]
    names = sections[names_index][4]
    wanted = name.encode() + b"\0"
    for name_offset, _, _, _, offset, size in sections:
        if code.startswith(wanted, names + name_offset):
            return code[offset : offset + size]
    return b""


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each record."""
    at = 0
    while at + _RECORD.size <= len(content):
        form, kind, value = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        size = value if form == _HAS_CONTENT else 0
        yield kind, content[at : at + size]
        at += size
