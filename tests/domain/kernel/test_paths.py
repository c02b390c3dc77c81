"""domain/kernel/paths.py: paths that lie in a folder, and paths that do not."""

import pytest

from omac.domain.kernel.paths import below, folder_of


@pytest.mark.parametrize(
    ("path", "folder", "lies"),
    [
        ("/a", "/a", True), ("/a/b", "/a", True), ("/a/b/c", "/a", True), ("/a", "/", True), ("/", "/", True),
        ("/ab", "/a", False), ("/", "/a", False), ("/a", "/a/b", False), ("/b/a", "/a", False), ("/a", "", False),
        ("", "", False), ("/A/b", "/a", False),
    ],
)  # fmt: skip
def test_below(path: str, folder: str, lies: bool) -> None:
    assert below(path, folder) is lies
    assert below(path.encode(), folder.encode()) is lies


@pytest.mark.parametrize(("path", "folder"), [("/a/b/c", "/a/b"), ("/a", "/"), ("/", "/")])
def test_folder_of(path: str, folder: str) -> None:
    assert folder_of(path) == folder
