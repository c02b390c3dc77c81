"""The branches of a project's repository, listed by the host's git while a run begins and when it has ended.

git reads neither index nor files of the worktree for it, runs no hook, no helper and no pager, and fetches nothing.
Where it fails, or takes too long, nothing is known.
"""

import os
import subprocess
import time
from collections.abc import Mapping
from typing import IO

from omac.adapters.git.program import environment
from omac.adapters.linux import host_programs
from omac.domain.git.heads import COMMITS_MAX, NewCommits, heads_of, moved, new_commits

WITHIN_S = 0.5  # at the end of a run, for all that git is asked
BRANCHES_MAX = 8  # whose commits are counted
LISTING_BYTES_MAX = 8 << 20
_SAFE = (
    "--no-pager", "--no-optional-locks", "--no-replace-objects", "-c", "core.fsmonitor=false",
    "-c", "core.hooksPath=/dev/null",
)  # fmt: skip
_HEADS = ("show-ref", "--head", "--heads")
_LISTED = (0, 1)  # the latter where there is no commit yet


class BranchHeads:
    """The branches of the repository around `folder`, listed since this was made; git works meanwhile."""

    def __init__(self, folder: str, host: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment(host)
        self._before: IO[bytes] = os.fdopen(os.memfd_create("omac-heads"), "w+b")
        self._listing = self._begin(_HEADS, self._before)

    def new_commits(self) -> list[NewCommits]:
        """Return what came to the branches since; nothing where there is no repository. Call it once."""
        deadline = time.monotonic() + WITHIN_S
        try:
            with self._before, os.fdopen(os.memfd_create("omac-heads"), "w+b") as now:
                if self._status(self._listing, deadline) not in _LISTED:
                    return []  # no repository, most often
                listing = self._begin(_HEADS, now)
                if self._status(listing, deadline) not in _LISTED:
                    return []
                before, after = heads_of(_content(self._before)), heads_of(_content(now))
            counted = list(moved(before, after).items())[:BRANCHES_MAX]
            commits = [self._count(branch, head, before, deadline) for branch, head in counted]
            return [entry for entry in commits if entry is not None]
        except OSError:
            return []

    def _count(self, branch: str, head: str, before: Mapping[str, str], deadline: float) -> NewCommits | None:
        """The commits of `head` that no branch had before."""
        words = ("rev-list", f"--max-count={COMMITS_MAX}", "--format=%s", "--stdin")
        revisions = "\n".join([head, *(f"^{commit}" for commit in sorted(set(before.values())))]) + "\n"
        with os.fdopen(os.memfd_create("omac-commits"), "w+b") as output:
            with os.fdopen(os.memfd_create("omac-asked"), "w+b") as stdin:
                stdin.write(revisions.encode())
                stdin.seek(0)
                listing = self._begin(words, output, stdin)
            return None if self._status(listing, deadline) else new_commits(branch, _content(output))

    def _begin(self, words: tuple[str, ...], output: IO[bytes], stdin: IO[bytes] | None = None) -> "Listing | None":
        git = host_programs.find("git")
        if not git:
            return None
        try:
            return subprocess.Popen(
                [git, *_SAFE, "-C", self._folder, *words],
                stdin=stdin or subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd="/",
                start_new_session=True,  # no signal of the terminal is for it
            )
        except OSError:
            return None

    @staticmethod
    def _status(listing: "Listing | None", deadline: float) -> int:
        """The exit status of git, -1 where it was not there or not in time."""
        if listing is None:
            return -1
        try:
            return listing.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            listing.kill()
            listing.wait()
            return -1


Listing = subprocess.Popen[bytes]


def _content(file: IO[bytes]) -> bytes:
    """Return the content of a file that was written by its descriptor, LISTING_BYTES_MAX at most."""
    file.seek(0)
    return file.read(LISTING_BYTES_MAX)
