"""The processes of a sandbox, stopped while omac is: it sets nothing aside then, and a person may use git."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the C part: `signal` itself takes 4 ms to import
import os
import time

from omac.adapters.linux.children import children_of
from omac.adapters.linux.process_identity import stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROUNDS_MAX = 200  # of stopping what was started meanwhile
_PAUSE_S = 0.001
JUDGED_WITHIN_S = 0.2  # what they wrote last is set aside by then (watch.py)
_AT_REST = b"TtZX"

Running = dict[int, bytes]  # the start of each process, by its pid


def stop_below(top: int, spared: Collection[int]) -> Running:
    """Stop all processes below one, but for the `spared`, and return those that were running."""
    running: Running = {}
    for _ in range(ROUNDS_MAX):
        fields_of = {pid: fields for pid in _below(top, spared) if (fields := stat_fields(pid))}
        awake = {pid: fields[19] for pid, fields in fields_of.items() if fields[0] not in _AT_REST}
        if not awake:
            break
        for pid in awake:
            _send(pid, _signal.SIGSTOP)
        running |= awake
        time.sleep(_PAUSE_S)
    time.sleep(JUDGED_WITHIN_S)
    return running


def resume(running: Running) -> None:
    """Let those go on that were running: children first, whose parents then see none that has stopped."""
    for pid, start in reversed(running.items()):
        if stat_fields(pid)[19:20] == [start]:
            _send(pid, _signal.SIGCONT)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended


def _below(top: int, spared: Collection[int]) -> Iterator[int]:
    """Yield the processes below one, parents before their children."""
    waiting = [top]
    while waiting:
        for child in children_of(waiting.pop()):
            if child not in spared:
                yield child
                waiting.append(child)
