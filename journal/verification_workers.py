"""Comparing events with their leaves in processes beside: a processor each, since one alone hashes as fast as it can.

Rules

1. A worker opens the journal itself, and may see what was appended or changed meanwhile. So only what it finds sound
   counts; whatever else it says, or leaves unsaid because it was killed, the verification looks at itself.
2. Workers take turns: the first part is for the first, the next for the second, and so on. Each answers for its parts
   in order, with one record of fixed length: a byte, 1 for sound, and the root of the part's leaves.
3. They end with the process that began them. Fewer begin where the system has no process left.
"""

import os
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO, NoReturn

from omac.domain.kernel.refusal import Refusal
from omac.journal.file import connect_for_reading
from omac.journal.leaves import HASHES, Contents
from omac.journal.merkle import HASH_BYTES, Range, perfect_root

RECORD_BYTES = 1 + HASH_BYTES


class VerificationWorkers:
    """Processes that compare `parts` of the journal at `path`, each as many leaves as a power of two. To be made in a
    process without threads; `close` ends them."""

    def __init__(self, path: str, parts: Sequence[Range], count: int) -> None:
        self._turns: dict[int, int] = {}
        self._pids: list[int] = []
        self._answers: list[BinaryIO] = []
        with suppress(OSError):  # no process or descriptor is left: those that have begun are enough
            for turn in range(count):
                self._begin(path, parts[turn::count])
                self._turns |= dict.fromkeys((start for start, _ in parts[turn::count]), turn)

    def _begin(self, path: str, parts: Sequence[Range]) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        answers = os.fdopen(reader, "rb")
        try:
            pid = os.fork()
            if not pid:
                _work(path, parts, writer)
        except OSError:
            answers.close()
            raise
        finally:
            os.close(writer)
        self._pids.append(pid)
        self._answers.append(answers)

    def root(self, start: int) -> bytes | None:
        """The root of the leaves of the part from `start`, where a worker found it sound; to be asked in the order of
        the parts. None: it did not, or there is no such part."""
        turn = self._turns.get(start)
        record = b"" if turn is None else self._answers[turn].read(RECORD_BYTES)
        return record[1:] if len(record) == RECORD_BYTES and record[0] == 1 else None

    def close(self) -> None:
        """End them, whether they are done or not."""
        for answer, pid in zip(self._answers, self._pids, strict=True):
            answer.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _work(path: str, parts: Sequence[Range], writer: int) -> NoReturn:
    """Answer for `parts`, and end the process: nothing of what the one that began it still has to do is done here."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nobody wants a second traceback
        connection = connect_for_reading(path, lenient=True)
        connection.execute("BEGIN")
        contents = Contents(connection)
        with os.fdopen(writer, "wb", buffering=0) as answers:
            for start, end in parts:
                leaves = [leaf for (leaf,) in connection.execute(HASHES, (start, end))]
                sound = contents.hashes(start, end) == leaves
                answers.write(b"\1" + perfect_root(leaves) if sound else bytes(RECORD_BYTES))
    except (sqlite3.Error, OSError, Refusal):
        pass  # rule 1
    finally:
        os._exit(0)
