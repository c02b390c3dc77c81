"""omac journal seal: moves the oldest events into a read-only file."""

import os
from collections.abc import Mapping
from functools import partial

from omac.domain.kernel.refusal import Refusal
from omac.journal.segment import Segment, folder_of
from omac.tools.cli.checkpoint import keys_in
from omac.tools.compose.clock import now_ns
from omac.tools.compose.sealing import SealRequest, seal
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import print_folded, print_line
from omac.tools.terminal.timestamps import AGO, parse_moment


def run(
    before: str | None,
    keep: str | None,
    journal_path: str | None,
    as_json: bool,
    environment: Mapping[str, str],
) -> int:
    """Seal, and print what was. Raises Refusal."""
    keys = partial(keys_in, keys=(), environment=environment)
    sealed = seal(SealRequest(moment_of(before, keep, "omac journal seal"), journal_path), keys, environment)
    if as_json:
        print_json({"path": sealed.path, "segment": _data(sealed.path, sealed.segment)})
        return 0
    if sealed.finished is not None:
        print_folded(f"an earlier seal is finished: {_described(sealed.path, sealed.finished)}")
    if sealed.segment is None:
        print_folded(f"nothing is sealed: {sealed.why}")
        if before is None and keep is None:
            print_line("  try: omac checkpoint  # signs and records one; then again")
    else:
        print_folded(_described(sealed.path, sealed.segment))
    return 0


def moment_of(before: str | None, keep: str | None, command: str) -> int | None:
    """Return the moment that options of `command` mean; None for neither. Raises Refusal (misuse)."""
    if before is not None and keep is not None:
        raise Refusal("misuse", "--before and --keep say the same thing: give one", fix=[f"{command} --keep 400d"])
    if keep is not None and not AGO.fullmatch(keep):
        raise Refusal("misuse", f"--keep takes an age such as 400d, not {keep!r}", fix=["--keep 400d"])
    word = before if before is not None else keep
    return parse_moment(word, now_ns, "--before") if word is not None else None


def _described(path: str, segment: Segment) -> str:
    return (
        f"positions {segment.first} to {segment.last} are sealed: {os.path.join(folder_of(path), segment.file)}, "
        f"{segment.bytes} bytes"
    )


def _data(path: str, segment: Segment | None) -> dict[str, object] | None:
    return None if segment is None else segment._asdict() | {"file": os.path.join(folder_of(path), segment.file)}
