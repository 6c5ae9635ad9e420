import pytest

from pagedchat.errors import InvalidValueError
from pagedchat.units import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        (0, 0), (123, 123), ("123", 123), ("0", 0), ("1b", 1),
        ("4GiB", 4 * 1024**3), ("4g", 4 * 1024**3), ("4GB", 4_000_000_000), ("512 MB", 512_000_000),
        ("1.5MiB", 1_572_864), (" 2 kib ", 2048), ("1TiB", 1024**4),
    ],
)  # fmt: skip
def test_size_is_read_as_people_write_it(text: str | int, num_bytes: int) -> None:
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize(
    "text",
    [None, 1.5, "", "GiB", "-1GiB", "4 GiBs", "4,5GB", "1e9", "0x10", "4GiB 2", "9" * 400 + "TiB", "9" * 5000],
)
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidValueError, match="4GiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (14_155_776, "13.5 MiB"), (4 * 1024**3, "4 GiB"),
     (3 * 1024**4, "3 TiB")],
)  # fmt: skip
def test_size_is_written_with_three_digits(num_bytes: int, text: str) -> None:
    assert format_size(num_bytes) == text


@pytest.mark.parametrize("num_bytes", [1, 1024, 3 * 1024**2, 5 * 1024**3])
def test_what_is_written_can_be_read_again(num_bytes: int) -> None:
    assert parse_size(format_size(num_bytes)) == num_bytes
