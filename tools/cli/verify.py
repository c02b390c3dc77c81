"""omac audit verify: whether the journal is what was recorded."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from omac.domain.access import signing
from omac.domain.kernel.refusal import Refusal
from omac.journal.reader import Reader
from omac.journal.verification import Chain, KeptRoot, Mismatch, Verified, verify
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.progress import Progress
from omac.tools.terminal.render import report, say

DAMAGED = 10


class VerifyRequest(NamedTuple):
    """A command line of `omac audit verify`."""

    first: str | None
    last: str | None
    checkpoints: tuple[str, ...]
    key: str | None
    journal: str | None
    json: bool


def run(request: VerifyRequest, environment: Mapping[str, str]) -> int:
    """Print what is found; 10 where something is. Raises Refusal."""
    path = StateDir.of(environment).journal_in_use(environment, request.journal)
    first, last = _position(request.first, "--from"), _position(request.last, "--to")
    kept: Sequence[KeptRoot] = ()
    with closing(Reader(path, lenient=True)) as reader:
        chain = _chain(reader, request.key, environment)
        if request.checkpoints:
            from omac.tools.cli.checkpoint import kept_roots

            kept = kept_roots(request.checkpoints, request.key, path, reader.journal_id(), environment)
    with Progress("events verified") as progress:
        verified = verify(path, [*chain.roots, *kept], first or 1, last, progress.show, chain.findings)
    if request.json:
        counts = {"checkpoints": len(chain.roots), "unknown_checkpoints": chain.unknown}
        print_json(_data(path, verified) | counts)
    else:
        _show(path, verified, chain)
    return DAMAGED if verified.findings else 0


def _chain(reader: Reader, key: str | None, environment: Mapping[str, str]) -> Chain:
    """The checkpoints that the journal has of itself, by `key`, or by that of this host."""
    if not reader.streams(signing.AGGREGATE.name):
        return Chain((), 0, ())  # cryptography takes longer to load than a short journal to verify
    from omac.journal.signed_chain import chain_of
    from omac.tools.cli.checkpoint import known_key

    return chain_of(reader, known_key(key, environment))


def _position(word: str | None, option: str) -> int | None:
    if word is None:
        return None
    if not word.isascii() or not word.isdigit() or not int(word):
        raise Refusal("misuse", f"{option} takes a position, which is a number from 1, not {word!r}")
    return int(word)


def _show(path: str, verified: Verified, chain: Chain) -> None:
    for finding in verified.findings:
        say(f"{_where(finding)}: {finding.problem} ({finding.kind})")
    say(f"{path}: {verified.checked} of {verified.size} events verified, root {verified.root.hex()}")
    if chain.roots:
        say(f"  {len(chain.roots)} checkpoints in the journal hold, up to position {chain.roots[-1].size}")
    if chain.unknown:
        say(f"  {chain.unknown} checkpoints are signed by a key that is not known here: name it with --key")
    if verified.late:
        say(f"  positions 1 to {verified.late} got their proofs later than they were recorded")
    if verified.head > verified.size:
        say(f"  positions {verified.size + 1} to {verified.head} have no proofs yet")
    if verified.set_aside:
        say(f"  set aside by omac journal repair: {', '.join(map(str, verified.set_aside))}")
    if verified.findings:
        report(f"the journal is not what was recorded, from position {verified.findings[0].position} on")
        report("  try: omac journal check")


def _where(finding: Mismatch) -> str:
    if finding.last == finding.position:
        return f"position {finding.position}"
    return f"positions {finding.position} to {finding.last}"


def _data(path: str, verified: Verified) -> dict[str, object]:
    findings = [finding._asdict() for finding in verified.findings]
    return {"path": path} | verified._asdict() | {"root": verified.root.hex(), "findings": findings}
