"""The programs of the host by which an approved sidecar runs, as they were when a person approved it.

Rules

1. A program that is not part of the approved copy is resolved at approval, and recorded.
2. Where it is small enough to be read, its content decides whether it is still the same; else its device and inode.
3. One that was not installed at approval has no path; what appears under its name later is not what was approved.
"""

import msgspec


class Interpreter(msgspec.Struct, frozen=True, array_like=True):
    """`name` is how the skill names it (`python3`, `/usr/bin/env`), `path` where that was, empty if nowhere.

    `device` and `inode` are of the file that `path` leads to; `digest` is its SHA-256, empty where it is not taken.
    """

    name: str
    path: str = ""
    device: int = 0
    inode: int = 0
    digest: str = ""

    def is_same(self, now: "Interpreter | None") -> bool:
        """Return whether the program at `path` is `now` what it was (rule 2); None: it is gone."""
        if now is None:
            return False
        if self.digest:
            return self.digest == now.digest
        return (self.device, self.inode) == (now.device, now.inode)
