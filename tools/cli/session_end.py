"""The report of `omac start` when its command has ended: a few lines, or none where the run left nothing to report."""

from collections.abc import Sequence

from omac.domain.git.heads import COMMITS_MAX, NewCommits
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.sizes import counted
from omac.domain.kernel.terminal_escaping import SHOWN, named, printable
from omac.projections.evidence.use import Calls, RunUse
from omac.tools.terminal.columns import columns, elided, elided_middle
from omac.tools.terminal.invocation import current
from omac.tools.terminal.render import report, report_whole, terminal_width
from omac.tools.terminal.timestamps import local_moment
from omac.tools.terminal.working_folder import is_current

WIDTH_MAX = 80
LABELLED = 12  # columns before what a line tells
SKILLS_SHOWN = 4
BRANCHES_SHOWN = 2
PATH_WIDTH = 48


def columns_of_report() -> int:
    """Return how many columns a line of the report may take, at most WIDTH_MAX."""
    return min(terminal_width(current().stderr) or WIDTH_MAX, WIDTH_MAX)


def report_end(use: RunUse, commits: Sequence[NewCommits], workdir: str, width: int) -> None:
    """Print what the run used, what came to the branches of the project, what is gone and what was denied. `width` is
    what `columns_of_report` gave before the agent began, which may change what the terminal says of itself."""
    if use.is_empty and not commits:
        return
    if current().stderr.isatty() and current().environment.get("TERM", "dumb") != "dumb":
        current().stderr.write(SHOWN)
    report("omac: what happened while it ran:")
    width = min(width, columns_of_report())
    for line in _lines(use, commits, width):
        report_whole(elided(printable(line), width))
    where = "." if is_current(workdir) else quoted(workdir)
    report_whole(f"  more      omac audit --dir {where} --since {local_moment(use.began_at)}")


def _lines(use: RunUse, commits: Sequence[NewCommits], width: int) -> list[str]:
    lines = []
    if use.calls:
        most = sorted(use.calls.items(), key=lambda item: (-item[1].all, item[0]))
        uses = [f"{printable(name)} {_calls(calls)}" for name, calls in most]
        lines.append(_line("used", _fitting(uses, width - LABELLED)))
    for number, group in enumerate(commits[:BRANCHES_SHOWN]):
        left = len(commits) - BRANCHES_SHOWN if number == BRANCHES_SHOWN - 1 else 0
        more = f" and {counted(left, 'more branch', 'more branches')}" if left > 0 else ""
        count = f"{group.number}{'+' if group.number == COMMITS_MAX else ''} commit{'' if group.number == 1 else 's'}"
        branch = elided_middle(printable(group.branch), width // 3)
        room = width - LABELLED - columns(f"{branch}: {count}, last ''{more}")
        lines.append(_line("committed", f"{branch}: {count}, last {_quoted(group.subject, room)}{more}"))
    if use.vanished:
        first = elided_middle(printable(named(use.vanished[0])), PATH_WIDTH)
        lines.append(_line("lost", f"{first}{_more(len(use.vanished) - 1 + use.vanished_more)}"))
        lines.append(_line("", "written outside the project, gone with the sandbox"))
    if use.writes_denied:
        times = "a write" if use.writes_denied == 1 else f"{use.writes_denied} writes, last"
        lines.append(_line("denied", f"{times} to {elided_middle(printable(named(use.last_denied)), PATH_WIDTH)}"))
    return lines


def _quoted(text: str, width: int) -> str:
    """A text between quotes, none of which is its own; `width` is what is between them."""
    shown = printable(repr(text))
    return shown[0] + elided(shown[1:-1], width) + shown[0]


def _fitting(texts: Sequence[str], width: int) -> str:
    """Return the first texts that fit in `width` columns, SKILLS_SHOWN at most and one at least, and how many more."""
    shown = [", ".join(texts[:number]) + _more(len(texts) - number) for number in range(1, SKILLS_SHOWN + 1)]
    return next((line for line in reversed(shown) if columns(line) <= width), shown[0])


def _line(label: str, text: str) -> str:
    return f"  {label:<9} {text}"


def _calls(calls: Calls) -> str:
    kinds = (calls.refused, "refused"), (calls.aborted, "cut off"), (calls.failed, "answered with 5xx")
    problems = [f"{number} {kind}" for number, kind in kinds if number]
    return counted(calls.all, "call") + (f" ({', '.join(problems)})" if problems else "")


def _more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""
