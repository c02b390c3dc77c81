"""The host's git, as its user runs it: where it is, in which environment, and what it says its settings are."""

from __future__ import annotations

import os
import time

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.git.pointers import unsafe
from omac.adapters.linux import host_programs
from omac.domain.kernel.refusal import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LIST_WITHIN_S = 10.0
LIST_BYTES_MAX = 8 << 20
_CHUNK_BYTES = 1 << 16
ALONE = {  # an object that is missing is not fetched: a project's settings say from where, and by which program
    "GIT_ALLOW_PROTOCOL": "none",  # counts more than protocol.NAME.allow in settings, as no -c does
    "GIT_NO_LAZY_FETCH": "1",  # which git knows since 2.45
    "GIT_TERMINAL_PROMPT": "0",
}
_LIST = ("config", "--list", "--show-origin", "--show-scope", "-z", "--includes")


def environment(host: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a git that omac runs: the user's settings count, other variables of git's do not; it,
    and what it runs, come from no folder that PATH names. It reaches no other repository."""
    kept = {name: value for name, value in host.items() if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")}
    return kept | {"PATH": host_programs.SEARCHED, "LC_ALL": "C"} | ALONE


def complaint(*words: str, stdin: bytes = b"", seconds: float = 60.0) -> str:
    """Run git with these words; returns what it complains of, empty where it does not."""
    import subprocess

    try:
        done = subprocess.run(
            [host_programs.find("git") or "git", *words],
            input=stdin,
            capture_output=True,
            env=environment(os.environ),
            cwd="/",
            timeout=seconds,
            check=False,
            start_new_session=True,  # no signal of the terminal is for it
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip() or "git failed"


class ConfigList:
    """`git config --list` in a folder, begun when this is made, and read later: it works meanwhile."""

    def __init__(self, folder: str, host: Mapping[str, str]) -> None:
        self.folder = folder
        self._pid = self._output = -1
        self._listing = b""
        git = host_programs.find("git")
        if not git:
            return
        self._output, theirs = os.pipe()
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, theirs, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        with Descriptor(theirs):
            line = [git, "-C", folder, *_LIST]
            self._pid = os.posix_spawn(git, line, environment(host), file_actions=actions)

    def discard(self) -> None:
        """End git where it has not been read: it may wait for ever, for a FIFO say."""
        if self._pid >= 0:
            pid, self._pid = self._pid, -1
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(self._output)
            self._output = -1

    def read(self) -> bytes:
        """Return what git listed; nothing where no git is installed. Raises Refusal (git-unsafe)."""
        if self._pid < 0:
            return self._listing
        pid, self._pid = self._pid, -1
        listing = self._read_output()
        if listing is None:
            os.kill(pid, 9)
        _, status = os.waitpid(pid, 0)
        if listing is None or status:
            why = "it does not end" if listing is None else complaint("-C", self.folder, *_LIST, seconds=LIST_WITHIN_S)
            fix = f"git -C {quoted(self.folder)} config --list --show-origin"
            raise unsafe(f"git cannot list its settings in {self.folder}: {why[:300]}", fix)
        self._listing = listing
        return listing

    def _read_output(self) -> bytes | None:
        """Return all that git prints; None if it does not end in time, or prints too much."""
        import select

        waiting = select.poll()
        waiting.register(self._output, select.POLLIN)
        deadline = time.monotonic() + LIST_WITHIN_S
        output = b""
        try:
            while waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
                piece = os.read(self._output, _CHUNK_BYTES)
                if not piece:
                    return output
                output += piece
                if len(output) > LIST_BYTES_MAX:
                    break
            return None
        finally:
            os.close(self._output)
            self._output = -1
