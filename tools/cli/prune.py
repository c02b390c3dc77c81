"""omac journal prune: drops contents of old sealed segments, and keeps what proves them."""

from collections.abc import Mapping, Sequence
from functools import partial

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.journal.checkpoint import VerifierKey
from omac.tools.cli.checkpoint import keys_in
from omac.tools.cli.seal import moment_of
from omac.tools.compose.pruning import PlannedPrune, pruning
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.prompts import confirm
from omac.tools.terminal.render import print_folded, print_line, report
from omac.tools.terminal.timestamps import local_moment


def run(
    keep: str | None,
    before: str | None,
    keys: Sequence[str],
    yes: bool,
    journal_path: str | None,
    as_json: bool,
    environment: Mapping[str, str],
) -> int:
    """Show what will be gone, ask, and drop it. Raises Refusal."""
    moment = moment_of(before, keep, "omac journal prune")
    if moment is None:
        raise Refusal("misuse", "say how old contents may be", fix=["omac journal prune --keep 400d"])
    with pruning(journal_path, partial(_known, keys=keys, environment=environment), environment) as work:
        planned = work.plan(moment)
        if not planned:
            sealed_by = f"--before {quoted(before)}" if before is not None else f"--keep {keep}"
            _show_nothing(as_json, work.path, sealed_by if work.can_seal(moment) else "")
            return 0
        if not as_json:
            _show(planned)
        if not yes and not confirm("Drop these contents?"):
            report("nothing was changed")
            return 1
        for prune in planned:
            work.perform(prune)
    if as_json:
        print_json({"path": work.path, "pruned": [_data(prune) for prune in planned]})
    else:
        print_line(f"pruned up to position {planned[-1].segment.last}; proofs and checkpoints stay")
    return 0


def _known(path: str, keys: Sequence[str], environment: Mapping[str, str]) -> list[VerifierKey]:
    """Return the keys by which this host signs, and those that a person names."""
    named = keys_in(path, keys, environment) if keys else []
    return [*keys_in(path, (), environment), *named]


def _show_nothing(as_json: bool, path: str, sealed_by: str) -> None:
    """Print that nothing is pruned; `sealed_by` are the options of the seal that mends it, "" where none does."""
    if as_json:
        print_json({"path": path, "pruned": []})
        return
    print_line("nothing is pruned: no sealed segment has only events of that time")
    if sealed_by:  # without them it would seal younger events, too, and the segment be too young for long
        print_line(f"  try: omac journal seal {sealed_by} --journal {quoted(path)}  # seals them; then again")


def _show(planned: Sequence[PlannedPrune]) -> None:
    for prune in planned:
        first, last = prune.segment.first, prune.segment.last
        print_line(f"positions {first} to {last}, from {local_moment(prune.begun)} to {local_moment(prune.ended)}:")
        print_line(f"  the contents of {counted(prune.dropped.total(), 'event')} will be gone, for good:")
        for kind, count in sorted(prune.dropped.items(), key=lambda pair: (-pair[1], pair[0])):
            print_line(f"  {count:>9}  {kind}")
        print_line(f"  {counted(len(prune.kept), 'event is', 'events are')} kept: omac's state follows from them")
    print_folded("All leaves, proofs and checkpoints are kept. Backups made earlier keep the contents.")


def _data(prune: PlannedPrune) -> dict[str, object]:
    return {
        "first": prune.segment.first,
        "last": prune.segment.last,
        "dropped": dict(prune.dropped),
        "kept": len(prune.kept),
        "state": prune.state,
    }
