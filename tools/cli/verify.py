"""omac audit verify: whether the journal is what was recorded."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from omac.domain.access import signing
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.journal.closed_fields import ClosedFields, closed_fields
from omac.journal.reader import Reader
from omac.journal.segment import SegmentError
from omac.journal.verification import Chain, KeptRoot, Mismatch, Verified, verify
from omac.tools.cli.audit_filters import between_none
from omac.tools.compose.journals import codec_of, mark_of, path_in_use
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import is_position, print_json, typed_with
from omac.tools.terminal.progress import Progress
from omac.tools.terminal.render import print_folded, print_line, report, report_fix

DAMAGED = 10


class VerifyRequest(NamedTuple):
    """A command line of `omac audit verify`."""

    first: str | None
    last: str | None
    checkpoints: tuple[str, ...]
    keys: tuple[str, ...]
    journal: str | None
    json: bool


def run(request: VerifyRequest, environment: Mapping[str, str]) -> int:
    """Print what is found; 10 where something is. Raises Refusal."""
    state = StateDir.of(environment)
    path = path_in_use(state, environment, request.journal)
    first, last = _position(request.first, "--from"), _position(request.last, "--to")
    if last is not None and last < (first or 1):
        raise between_none(first or 1, last)
    kept: Sequence[KeptRoot] = ()
    seen = mark_of(state, path).read()  # before the journal is read: both may grow meanwhile
    with closing(Reader(path, lenient=True)) as reader:
        chain = _chain(reader, path, request.keys, environment)
        if request.checkpoints:
            from omac.tools.cli.checkpoint import kept_roots, keys_in

            keys = keys_in(path, request.keys, environment)
            kept = kept_roots(request.checkpoints, keys, path, reader.journal_id())
        journal_id = reader.journal_id()
    with Progress("events verified") as progress:
        verified = verify(path, [*chain.roots, *kept], first or 1, last, progress.show, chain.findings, _processors())
    if lost := _lost(seen, journal_id, verified.head):
        verified = verified._replace(findings=tuple(sorted((*verified.findings, lost))))
    if first is not None and first > max(verified.size, verified.head) and not verified.findings:
        raise Refusal(
            "misuse", f"no event is at position {first}: the journal ends at {verified.head}", fix=["--from 1"]
        )
    closed = ClosedFields() if verified.findings else _closed(state, path)
    if request.json:
        counts = {"checkpoints": len(chain.roots), "unknown_checkpoints": chain.unknown, "breaks": chain.breaks}
        print_json(_data(path, verified) | counts | {"kept": len(kept), "closed": closed.events})
    else:
        _show(path, verified, chain, kept)
        if closed.events:
            are = counted(closed.events, "event has", "events have")
            print_folded(f"  {are} personal fields that read as (erased), the first at position {closed.first}:", 4)
            print_folded("    their key is not here, and the journal has no erasure of it", 4)
    return DAMAGED if verified.findings else 0


def _chain(reader: Reader, path: str, keys: Sequence[str], environment: Mapping[str, str]) -> Chain:
    """The checkpoints that the journal has of itself, by `keys`, or by those of this host."""
    if not keys and not reader.streams(signing.AGGREGATE.name):
        return Chain((), 0, ())  # cryptography takes longer to load than a short journal to verify
    from omac.journal.signed_chain import chain_of
    from omac.tools.cli.checkpoint import resolve_keys

    try:
        return chain_of(reader, resolve_keys(path, keys, environment))
    except Refusal as refusal:
        if isinstance(refusal.__cause__, SegmentError):  # the verification names it
            return Chain((), 0, ())
        raise


def _lost(seen: tuple[str, int] | None, journal_id: str, head: int) -> Mismatch | None:
    """Return what is wrong with a journal that is not, or no longer, the one that its mark knows."""
    known, position = seen or (journal_id, 0)
    if journal_id != known:
        return Mismatch(1, max(head, 1), "rewritten", f"omac last used another journal here, with id {known}")
    if head < position:
        problem = f"omac last saw it at position {position}: its end was cut, or it is an older copy"
        return Mismatch(head + 1, position, "truncated", problem)
    return None


def _closed(state: StateDir, path: str) -> ClosedFields:
    with closing(Reader(path, lenient=True)) as reader:
        return closed_fields(reader, codec_of(state, reader))


def _processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def _position(word: str | None, option: str) -> int | None:
    if word is None:
        return None
    if not is_position(word) or not int(word):
        message = f"{option} takes a position, which is a number from 1, not {word!r}"
        raise Refusal("misuse", message, fix=[f"{option} 1"])
    return int(word)


def _show(path: str, verified: Verified, chain: Chain, roots: Sequence[KeptRoot]) -> None:
    kept = max((root.size for root in roots), default=0)
    for finding in verified.findings:
        print_folded(f"{_where(finding)}: {finding.problem} ({finding.kind})")
    done = "compared with their proofs" if verified.findings else "verified"
    print_folded(f"{path}: {verified.checked} of {counted(verified.size, 'event')} {done}, root {verified.root.hex()}")
    if chain.roots:
        holds = counted(len(chain.roots), "checkpoint in the journal holds", "checkpoints in the journal hold")
        print_line(f"  {holds}, up to position {chain.roots[-1].size}")
    if roots and not verified.findings:
        holds = counted(len(roots), "checkpoint that you kept holds", "checkpoints that you kept hold")
        print_line(f"  {holds}, up to position {kept}")
    if chain.unknown:
        are_signed = counted(chain.unknown, "checkpoint is signed", "checkpoints are signed")
        print_line(f"  {are_signed} by a key that is not known here: name it with --key")
    for position in chain.breaks:
        replaced = f"  at position {position} a new key replaced a lost one"
        if position > kept:
            print_folded(f"{replaced}, and nothing that one signed leads to it;", 4)
            print_line("    only a checkpoint from after it, kept elsewhere, gets across:")
            print_line("    omac audit verify --checkpoint FILE")
        else:
            print_folded(f"{replaced}; a checkpoint that you kept counts it", 4)
    if verified.late:
        print_folded(f"  positions 1 to {verified.late} got their proofs later than they were recorded", 4)
    if verified.head > verified.size:
        print_line(f"  positions {verified.size + 1} to {verified.head} have no proofs yet")
    if verified.pruned:
        print_folded(f"  the contents of {verified.pruned} of them were pruned: their leaves are verified", 4)
    if verified.set_aside:
        print_folded(f"  set aside by omac journal repair: {', '.join(map(str, verified.set_aside))}", 4)
    if verified.findings:
        report(f"the journal is not what was recorded, from position {verified.findings[0].position} on")
        report_fix(_commands(path, verified))


def _commands(path: str, verified: Verified) -> list[str]:
    """Return the commands that lead on from findings."""
    named = f"--journal {quoted(path)}"
    commands = [
        f"omac journal check {named}  # which positions cannot be read, and the command that repairs them",
        f"omac journal restore BACKUP {named}  # a copy of omac journal backup from before",
    ]
    if all(finding.kind == "checkpoint-invalid" for finding in verified.findings):  # the events are as proven
        remark = "what omac key show printed when these were signed: the key may have been replaced since"
        commands.insert(0, typed_with(f"--key KEY  # {remark}"))
    return commands


def _where(finding: Mismatch) -> str:
    if finding.last == finding.position:
        return f"position {finding.position}"
    return f"positions {finding.position} to {finding.last}"


def _data(path: str, verified: Verified) -> dict[str, object]:
    findings = [finding._asdict() for finding in verified.findings]
    return {"path": path} | verified._asdict() | {"root": verified.root.hex(), "findings": findings}
