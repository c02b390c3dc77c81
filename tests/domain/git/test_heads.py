"""New and changed branches between two moments, read from git's listings."""

from omac.domain.git.heads import NewCommits, heads_of, moved, new_commits


def test_branches_that_moved() -> None:
    """New and changed branches count as moved, and HEAD only where it is detached. A removed branch does not count."""
    before = heads_of(b"11 HEAD\n11 refs/heads/main\n22 refs/heads/a/b\n33 refs/heads/gone\n")
    assert before == {"HEAD": "11", "main": "11", "a/b": "22", "gone": "33"}
    after = heads_of(b"44 HEAD\n44 refs/heads/main\n22 refs/heads/a/b\n55 refs/heads/new\n")
    assert moved(before, after) == {"main": "44", "new": "55"}
    assert moved(before, heads_of(b"66 HEAD\n11 refs/heads/main\n")) == {"HEAD": "66"}
    assert moved(before, heads_of(b"")) == {}
    assert moved(
        before, heads_of(b"66 HEAD\n66 refs/heads/aa\n66 refs/heads/main\n77 refs/heads/x\n77 refs/heads/y\n")
    ) == {
        "main": "66",
        "x": "77",
    }


def test_no_name_of_a_branch_is_a_line() -> None:
    """A branch's name may be HEAD or hold line ends beyond ASCII, since git forbids only control characters of
    ASCII."""
    for end in ("\x85", "\u2028", "\u2029"):
        listing = f"11 HEAD\n11 refs/heads/main\n22 refs/heads/a{end}33\n".encode()
        assert heads_of(listing) == {"HEAD": "11", "main": "11", f"a{end}33": "22"}
    assert heads_of(b"11 HEAD\n22 refs/heads/HEAD\n") == {"HEAD": "11", "refs/heads/HEAD": "22"}
    assert heads_of(b"--all HEAD\n11 refs/tags/a\n11\n") == {}


def test_commits_are_counted() -> None:
    """A subject that looks like git's own line does not count; without commits, the answer is None."""
    assert new_commits("main", b"commit 11\ncommit 22\ncommit 33\n\n") == NewCommits("main", 2, "commit 22")
    assert new_commits("main", b"commit 11\n\xff\n") == NewCommits("main", 1, "\N{REPLACEMENT CHARACTER}")
    assert new_commits("main", b"") is None
