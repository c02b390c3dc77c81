"""omac replay: the state as it was at a position or a time, and the events that led there."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.refusal import Refusal
from omac.journal.reader import ReadJournal
from omac.projections.status import status_of
from omac.projections.system import System
from omac.tools.compose.journals import to_read
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import show_registry, show_status, show_timeline
from omac.tools.terminal.timestamps import parse_end

POSITION_DIGITS_MAX = 18
LED_THERE = 20  # events shown to people


def run(
    at: str, journal_path: str | None, as_json: bool, environment: Mapping[str, str], clock: Callable[[], int]
) -> int:
    """Show the state at `at`. Raises Refusal."""
    system = System()
    last: deque[Recorded] = deque(maxlen=LED_THERE)
    with closing(to_read(environment, journal_path)) as journal:
        for recorded in _up_to(journal, at, clock):
            system.apply(recorded)
            last.append(recorded)
    if as_json:
        print_json(status_of(system))
    else:
        show_status(status_of(system))
        show_registry(status_of(system))
        show_timeline(last, system)
    return 0


def _up_to(journal: ReadJournal, at: str, clock: Callable[[], int]) -> Iterator[Recorded]:
    if at.isascii() and at.isdigit():
        head = journal.store.head()
        if len(at) > POSITION_DIGITS_MAX or int(at) > head:
            raise Refusal("not-found", f"the journal ends at position {head}", fix=[f"omac replay --at {head}"])
        if int(at) > 0:
            yield from journal.records(0, int(at))
        return
    yield from journal.records(0, journal.store.position_at(parse_end(at, clock)))
