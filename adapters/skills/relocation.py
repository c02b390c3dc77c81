"""Files that hold the absolute path of the folder they are in: in a copy they would run what lies at the old place.

That is how virtual environments and editable installs work: the first line of a script (`#!/path/bin/python3`, or the
`'''exec' '/path with blanks/bin/python3'` below `#!/bin/sh`), `*.pth`, `pyvenv.cfg`, `bin/activate*` and
`__editable__*.py`. In a copy they say the path of the copy.
"""

import re

HEAD_BYTES = 16 * 1024  # of a script: the kernel reads 256 of them, a shell a path of 4096
WHOLE_BYTES_MAX = 256 * 1024
SHEBANG_BYTES_MAX = 255  # longer ones are cut off or refused: execve(2)
WHOLE = re.compile(r"(?s:.*/)?([^/]*\.pth|pyvenv\.cfg|__editable__[^/]*\.py|bin/[Aa]ctivate[^/]*)")
EXEC = b"'''exec'"
UNSPELT = re.compile(r"""[\x00-\x1f\\\x7f"'$`]""")  # written in other ways by one tool or another


class Relocation:
    """Says `new` for each mention of the path `old` and of what is below it, and back."""

    def __init__(self, old: bytes, new: bytes) -> None:
        self.old = old
        self.new = new
        self._old = mentions_of(old)
        self._new = mentions_of(new)

    def there(self, content: bytes) -> bytes:
        """`content` as the copy has it."""
        return self._old.sub(lambda _: self.new, content)

    def back(self, content: bytes) -> bytes | None:
        """Return the original that a copy holds as `content`; None if no original becomes that."""
        original = self._new.sub(lambda _: self.old, content)
        return original if self.there(original) == content else None


def mentions_of(path: bytes) -> re.Pattern[bytes]:
    """Finds `path` where it is not the beginning of a longer name.

    Anything may stand before: a path too many is a broken one, a path too few runs what nobody approved.
    """
    return re.compile(re.escape(path) + rb"(?![\w.\x80-\xff-])")


def is_whole(relpath: str) -> bool:
    """Return whether all of the file at `relpath` may hold paths; in other files only the first lines may, if they are
    scripts."""
    return WHOLE.fullmatch(relpath) is not None


def beginning(relpath: str, chunk: memoryview) -> bytes:
    """Return the part of a file's first `chunk` that `extent` needs."""
    return bytes(chunk if is_whole(relpath) else chunk[: HEAD_BYTES + 1])


def extent(relpath: str, start: bytes) -> int:
    """Return how many bytes of a file that begins with `start` hold paths to relocate; in a copy they are as many
    lines."""
    if is_whole(relpath):
        return len(start)
    if not start.startswith(b"#!"):
        return 0
    head = start[:HEAD_BYTES]
    end = head.find(b"\n") + 1 or (len(head) if len(head) == len(start) else 0)
    if end and head.startswith(EXEC, end):
        second = head.find(b"\n", end) + 1
        return second or (len(head) if len(head) == len(start) else end)
    return end
