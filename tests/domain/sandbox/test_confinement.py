"""domain/sandbox/confinement.py: the entry of a policy that decides about a path."""

from itertools import permutations

import pytest

from omac.domain.kernel.paths import below
from omac.domain.sandbox.confinement import DENY, READ, WRITE, Entry, governing, ordered

WORK = Entry("/home/me/work", WRITE, "working directory")
GIT = Entry("/home/me/work/.git/hooks", DENY, "git")
ENTRIES = (Entry("/usr", READ, "the system"), Entry("/home/me", DENY, "home"), WORK, GIT)


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/usr", READ),
        ("/usr/lib/x", READ),
        ("/usrlocal", None),
        ("/", None),
        ("/etc/passwd", None),
        ("/home/me/.ssh/id", DENY),
        ("/home/me/work", WRITE),
        ("/home/me/workshop", DENY),
        ("/home/me/work/.git/config", WRITE),
        ("/home/me/work/.git/hooks/pre-commit", DENY),
    ],
)
def test_the_longest_path_decides(path: str, access: str | None) -> None:
    """Rules 1 and 2: the longest path decides, in any order of the entries. A name that only begins alike is no folder
    above."""
    for entries in permutations(ENTRIES):
        entry = governing(entries, path)
        assert (entry and entry.access) == access


def test_of_two_for_one_path_the_later_counts() -> None:
    """A later entry replaces an earlier one for the same path, in `governing` as in `ordered`."""
    again = Entry(WORK.path, READ, "said again")
    assert governing((WORK, again), WORK.path) is again
    assert ordered((WORK, again)) == (again,)
    assert ordered((again, WORK)) == (WORK,)


def test_parents_come_before_what_is_below_them() -> None:
    """A mount hides everything below it, so the folders above are mounted first."""
    paths = ["/a", "/a/b", "/a/b/c", "/a-b", "/a.b/c", "/"]
    for entries in permutations([Entry(path, READ, "") for path in paths]):
        mounts = [entry.path for entry in ordered(entries)]
        for at, path in enumerate(mounts):
            assert not any(below(earlier, path) and earlier != path for earlier in mounts[:at])


def test_everything_is_below_the_root() -> None:
    """Every path is below the root, whose path ends in the separator itself."""
    assert below("/etc", "/")
    assert below("/", "/")
    assert not below("/", "/etc")
