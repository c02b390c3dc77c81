"""adapters/linux/resolve_symlinks.py: links on the way to a path resolve as the system resolves them."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.adapters.linux.resolve_symlinks import (
    PARTS_MAX,
    WayTooLong,
    leads_into,
    resolve_inside,
    resolve_symlinks,
    unresolved,
)
from omac.domain.kernel.refusal import Refusal

PARTS = st.sampled_from(["a", "b", "c", "d", "..", ".", "", "up", "top", "gone"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree of folders a/b/c/d with links in all directions."""
    top = tmp_path_factory.mktemp("tree").resolve()
    (top / "a/b/c/d").mkdir(parents=True)
    for folder in (top, top / "a", top / "a/b", top / "a/b/c"):
        (folder / "up").symlink_to("../" if folder != top else "a/b")
        (folder / "top").symlink_to(top / "a/up/../b")
    return top


@given(st.lists(PARTS, max_size=8))
@settings(max_examples=examples(300))
def test_it_ends_where_the_system_says(tree: Path, parts: list[str]) -> None:
    """A path, existing or not, resolves as by the system; each link is a real one, at a canonical path."""
    path = f"{tree}/{'/'.join(parts)}"
    links, real = resolve_symlinks(path)
    assert real == os.path.realpath(path)
    for link, target in links:
        assert os.readlink(link) == target
        assert os.path.realpath(os.path.dirname(link)) == os.path.dirname(link)


@given(st.lists(PARTS, max_size=8))
@settings(max_examples=examples(300))
def test_inside_ends_where_the_system_says(tree: Path, parts: list[str]) -> None:
    """A path that ends inside its root resolves as by the system; one that ends outside resolves to nothing."""
    path = f"{tree}/{'/'.join(parts)}"
    real = os.path.realpath(path)
    assert resolve_inside(path, [str(tree)]) == (real if Path(real).is_relative_to(tree) else "")


@pytest.mark.parametrize(
    "target", ["loop", "/", "/proc/self/cwd", "../in", "..", "{top}x", "{top}/../other/in", "out/x"]
)
def test_links_that_lead_out(tmp_path: Path, target: str) -> None:
    """Links that lead out of their folder, or in circles, are not followed."""
    top = tmp_path / "top"
    top.mkdir()
    (tmp_path / "in").symlink_to("top")
    (top / "out").symlink_to("../in")
    (top / "loop").symlink_to(target.format(top=top))
    assert resolve_inside(f"{top}/loop", [str(top)]) == ""
    (tmp_path / "in").unlink()
    assert resolve_inside(f"{top}/loop", [str(top)]) == ""


def test_a_way_that_is_too_long(tmp_path: Path) -> None:
    """A path with very many parts, those of its links included, is followed to no end, as if it might lead anywhere."""
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to("x/../" * (PARTS_MAX // 2))
    for follow in (resolve_symlinks, lambda path: resolve_inside(path, [str(tmp_path)])):
        with pytest.raises(WayTooLong):
            follow(f"{tmp_path}/link")
    assert leads_into(f"{tmp_path}/link", "/proc")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("x/../" * 40)
    assert resolve_symlinks(f"{tmp_path}/link")[1] == str(tmp_path)


def test_links_from_one_root_to_another(tmp_path: Path) -> None:
    """Links between allowed roots are followed, there and back; links to other folders are not."""
    for name in ("one/a", "two/b", "three"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "one/to").symlink_to(tmp_path / "two")
    (tmp_path / "two/back").symlink_to("../one/a/../..")
    roots = [f"{tmp_path}/one", f"{tmp_path}/two"]
    assert resolve_inside(f"{tmp_path}/one/to/b", roots) == f"{tmp_path}/two/b"
    assert resolve_inside(f"{tmp_path}/one/to/back/one/a", roots) == f"{tmp_path}/one/a"
    assert (
        resolve_inside(f"{tmp_path}/one/to/back/three", roots) == resolve_inside(f"{tmp_path}/one/to", roots[:1]) == ""
    )


def test_links_in_circles_are_an_error(tmp_path: Path) -> None:
    """Links in circles are an ELOOP error, as for the kernel."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="one") as caught:
        resolve_symlinks(str(tmp_path / "one/x"))
    assert caught.value.errno == errno.ELOOP
    assert resolve_symlinks("/") == ([], "/")


def test_typed_paths_become_absolute() -> None:
    """A leading `~` becomes the given home; links and `..` stay."""
    assert unresolved("~", "/home/me") == "/home/me"
    assert unresolved("~/a/../b", "/home/me") == "/home/me/a/../b"
    assert unresolved("~other", "/home/me").endswith("/~other")


def test_a_current_directory_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path in a removed current directory is refused; absolute paths and `~` still work."""
    directory = tmp_path / "gone"
    directory.mkdir()
    monkeypatch.chdir(directory)
    directory.rmdir()
    with pytest.raises(Refusal, match="current directory was removed") as refused:
        unresolved(".", "/home/me")
    assert (refused.value.reason, list(refused.value.fix)) == ("directory-missing", ["cd"])
    assert unresolved("/usr/../etc", "/home/me") == "/usr/../etc"
    assert unresolved("~/a", "/home/me") == "/home/me/a"
