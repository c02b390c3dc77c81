"""adapters/linux/resolve_symlinks.py: the links on the way to a path, compared with the system's own answer."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.adapters.linux.resolve_symlinks import resolve_symlinks, unresolved
from omac.domain.kernel.refusal import Refusal

PARTS = st.sampled_from(["a", "b", "c", "d", "..", ".", "", "up", "top", "gone"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders a/b/c/d with links in all directions."""
    top = tmp_path_factory.mktemp("tree").resolve()
    (top / "a/b/c/d").mkdir(parents=True)
    for folder in (top, top / "a", top / "a/b", top / "a/b/c"):
        (folder / "up").symlink_to("../" if folder != top else "a/b")
        (folder / "top").symlink_to(top / "a/up/../b")
    return top


@given(st.lists(PARTS, max_size=8))
@settings(max_examples=examples(300), deadline=None)
def test_it_ends_where_the_system_says(tree: Path, parts: list[str]) -> None:
    """For every path, be it there or not; and each link is one, at a canonical place."""
    path = f"{tree}/{'/'.join(parts)}"
    links, real = resolve_symlinks(path)
    assert real == os.path.realpath(path)
    for link, target in links:
        assert os.readlink(link) == target
        assert os.path.realpath(os.path.dirname(link)) == os.path.dirname(link)


def test_links_in_circles_are_an_error(tmp_path: Path) -> None:
    """As for the kernel."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="one") as caught:
        resolve_symlinks(str(tmp_path / "one/x"))
    assert caught.value.errno == errno.ELOOP
    assert resolve_symlinks("/") == ([], "/")


def test_typed_paths_become_absolute() -> None:
    """`~` is the home that counts; links and `..` stay."""
    assert unresolved("~", "/home/me") == "/home/me"
    assert unresolved("~/a/../b", "/home/me") == "/home/me/a/../b"
    assert unresolved("~other", "/home/me").endswith("/~other")


def test_a_current_directory_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is refused by name where a path begins in it; absolute paths do not need it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(Refusal, match="current directory was removed") as refused:
        unresolved(".", "/home/me")
    assert (refused.value.reason, list(refused.value.fix)) == ("directory-missing", ["cd"])
    assert unresolved("/usr/../etc", "/home/me") == "/usr/../etc"
    assert unresolved("~/a", "/home/me") == "/home/me/a"
