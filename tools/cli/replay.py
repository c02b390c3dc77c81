"""omac replay: the state as it was at a position or a time, and the events that led there."""

from collections.abc import Mapping

from omac.domain.kernel.refusal import Refusal
from omac.journal.reader import ReadJournal
from omac.projections.status import status_of
from omac.services.kernel.restoring import restored
from omac.tools.compose.clock import now_ns
from omac.tools.compose.journals import require_left, snapshots_of, to_read
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import is_position, print_json
from omac.tools.terminal.render import print_line, report_cut, show_registry, show_status, show_timeline
from omac.tools.terminal.timestamps import parse_end, wall_clock

LED_THERE = 20  # events shown to people


def run(at: str, journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show the state at `at`. Raises Refusal."""
    state = StateDir.of(environment)
    with to_read(environment, journal_path) as journal:
        position = _position(journal, at)
        require_left(journal.store, position if at.isdigit() else max(position, 1))
        system = restored(journal, snapshots_of(state, journal.store), position)
        last = list(journal.records(max(0, position - LED_THERE), position)) if not as_json else []
        began_at = "" if position or (first := journal.at(1)) is None else wall_clock(first.at)
    if as_json:
        print_json(status_of(system))
    elif not position:
        print_line("nothing was recorded then" + (f": position 1 is of {began_at}" if began_at else ""))
    else:
        show_status(status_of(system))
        show_registry(status_of(system))
        show_timeline(last, system)
        report_cut(last, journal_path)
    return 0


def _position(journal: ReadJournal, at: str) -> int:
    """The position that is meant. Raises Refusal."""
    if at.isascii() and at.isdigit():
        head = journal.store.head()
        if not is_position(at) or int(at) > head:
            raise Refusal("not-found", f"the journal ends at position {head}", fix=[f"--at {head}"])
        return int(at)
    return journal.store.position_at(parse_end(at, now_ns, "--at"))
