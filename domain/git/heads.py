"""The commits that a repository's branches got between two moments, and that none of them had before.

Names of branches and subjects of commits are text that an agent wrote.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

COMMITS_MAX = 1_000  # counted on a branch
_LISTED = re.compile(r"(?P<head>[0-9a-f]+) (?:refs/heads/(?P<branch>.+)|HEAD)")


class NewCommits(NamedTuple):
    """The `number` of new commits of a branch ("HEAD": of none), COMMITS_MAX for more, and the last one's `subject`."""

    branch: str
    number: int
    subject: str


def heads_of(listing: bytes) -> dict[str, str]:
    """Return the commit of each branch, and of "HEAD", as `git show-ref --head` lists them.

    A line ends with a line feed and nothing else: the name of a branch may hold what other programs take for an end.
    """
    heads = {}
    for line in listing.decode(errors="replace").split("\n"):
        if listed := _LISTED.fullmatch(line):
            branch = listed["branch"]
            heads[{None: "HEAD", "HEAD": "refs/heads/HEAD"}.get(branch, branch)] = listed["head"]
    return heads


def moved(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the branches that are new, or at another commit than before: those at HEAD first, and new ones behind
    others there. A new branch at the commit of another one has nothing of its own, nor has HEAD, and is left out."""
    at: dict[str, str] = {}
    for name, commit in sorted(after.items(), key=lambda item: (item[1] != after.get("HEAD"), item[0] not in before)):
        if name != "HEAD" and before.get(name) != commit and (name in before or commit not in at.values()):
            at[name] = commit
    head = after.get("HEAD", before.get("HEAD"))
    is_detached = head not in {commit for name, commit in after.items() if name != "HEAD"}
    return {"HEAD": head, **at} if head and is_detached and before.get("HEAD") != head else at


def new_commits(branch: str, listing: bytes) -> NewCommits | None:
    """Read what `git rev-list --format=%s` lists, the last commit first; None where it lists none."""
    lines = listing.decode(errors="replace").split("\n")
    subjects = [after for line, after in pairwise(lines) if line.startswith("commit ")]
    number = sum(1 for line in lines[::2] if line.startswith("commit "))
    return NewCommits(branch, number, subjects[0]) if number else None
