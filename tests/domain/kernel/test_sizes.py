"""domain/kernel/sizes.py: sizes as people write and read them."""

import pytest

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted, parse_size, shown_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("7B", 7),
        ("1K", 1024),
        ("1.5k", 1536),
        ("20G", 20 * 2**30),
        ("2 GiB", 2**31),
        (" 5 b ", 5),
    ],
)
def test_what_can_be_written(text: str, size: int) -> None:
    """Units are powers of 1024; a fraction, blanks and a B are optional."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "G",
        "-1",
        "1e3",
        "1.G",
        "20X",
        "1 000",
        "0x10",
        "٣",
        "inf",
        "B",
        "iB",
        ".5G",
        "1..5",
        "1GG",
        "1 G B",
        "1GBB",
        "9" * 16,
    ],
)
def test_what_cannot(text: str) -> None:
    """A text in another form is refused as misuse, and the message shows how to write a size."""
    with pytest.raises(Refusal, match="write 20G") as caught:
        parse_size(text)
    assert caught.value.reason == "misuse"


def test_a_count_agrees_with_what_is_counted() -> None:
    """A count of one comes with the singular, and any other count with the plural."""
    assert [counted(count, "call") for count in (0, 1, 2)] == ["0 calls", "1 call", "2 calls"]
    assert [counted(count, "try is", "tries are") for count in (1, 21)] == ["1 try is", "21 tries are"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (1536, "1.5 KiB"), (35 * 2**20, "35 MiB"), (10**15, "909 TiB")],
)
def test_what_is_shown(size: int, text: str) -> None:
    """A size is shown with about three digits and its unit."""
    assert shown_size(size) == text
