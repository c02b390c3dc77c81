"""omac cache: what build tools keep for each project, how much that is, and removing it."""

import os
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import parse_size, shown_size
from omac.domain.sandbox.cache_eviction import Cache, to_go
from omac.tools.compose.clock import now_ns
from omac.tools.compose.tool_caches import Caches, cache_id, open_caches
from omac.tools.terminal.invocation import expanded, print_json
from omac.tools.terminal.progress import Progress
from omac.tools.terminal.render import print_folded, report, show_columns
from omac.tools.terminal.timestamps import parse_moment, rfc3339

HEADS = ("WORKDIR", "SIZE", "LAST USED", "STATE", "ID")

Action = Literal["removed", "would be removed", "in use"]


class CacheRow(msgspec.Struct, frozen=True):
    """A cache that was chosen for removal: its outcome, and the reason. `workdir` is empty where none is named."""

    id: str
    workdir: str
    bytes: int
    action: Action
    reason: str


def list_(as_json: bool, environment: Mapping[str, str]) -> int:
    """Show all caches. Raises Refusal."""
    with Progress("files inspected") as progress, open_caches(environment, progress.step) as caches:
        listed = _inspect_present(caches, caches.ids()) if caches else []
    if as_json:
        for cache in listed:
            _print({**msgspec.structs.asdict(cache), "last_used": rfc3339(cache.last_used)})
    elif listed:
        _show_table(listed)
    else:
        report("no tool caches exist")
    return 0


def clear(workdir: str | None, every: bool, dry_run: bool, as_json: bool, environment: Mapping[str, str]) -> int:
    """Remove one cache, or all; 1 if one was in use, or would not go. Raises Refusal."""
    if every == (workdir is not None):
        raise Refusal("misuse", "name a project with --workdir DIR, or use --all", fix=["omac cache list"])
    where = os.path.realpath(expanded(workdir)) if workdir is not None else ""
    with Progress("files inspected or removed") as progress, open_caches(environment, progress.step) as caches:
        identities = [identity for identity in caches.ids() if every or identity == cache_id(where)] if caches else []
        chosen = [(cache, "asked for", None) for cache in _inspect_present(caches, identities)] if caches else []
        rows, problems = _removed(caches, chosen, dry_run) if caches else ([], [])
    if not rows:
        report(f"no tool cache exists for {where}" if where else "no tool caches exist")
    for row in rows:
        if where and row.workdir not in (where, ""):
            report(f"this is the cache of {row.workdir}: both paths have the same cache")
    _report(rows, problems, as_json)
    return 1 if problems or any(row.action == "in use" for row in rows) else 0


def gc(
    max_age: str,
    max_size: str | None,
    dry_run: bool,
    as_json: bool,
    environment: Mapping[str, str],
) -> int:
    """Remove the caches that are to go (`to_go`); 1 if something would not go. Raises Refusal."""
    since = parse_moment(max_age, now_ns, "--max-age")
    bytes_max = parse_size(max_size, "--max-size") if max_size is not None else None
    with Progress("files inspected or removed") as progress, open_caches(environment, progress.step) as caches:
        present = _inspect_present(caches, caches.ids()) if caches else []
        going = [(cache, why, cache.last_used) for cache, why in to_go(present, now_ns(), since, bytes_max)]
        rows, problems = _removed(caches, going, dry_run) if caches else ([], [])
        if caches and not dry_run:
            caches.drop_loose_locks()
    gone = {row.id for row in rows if row.action != "in use"}
    left = [cache for cache in present if cache.id not in gone]
    _report(rows, problems, as_json)
    total = sum(cache.bytes for cache in left)
    report(f"{len(gone)} {'to go' if dry_run else 'removed'}, {len(left)} stay with {shown_size(total)}")
    used = [cache for cache in left if cache.in_use]
    if used:
        report(f"in use, so kept: {', '.join(cache.workdir or cache.id for cache in used)}")
    if bytes_max is not None and total > bytes_max:
        report(f"that is more than {shown_size(bytes_max)}: caches in use are kept")
    return 1 if problems else 0


def _inspect_present(caches: Caches, ids: Iterable[str]) -> list[Cache]:
    present = []
    for identity in ids:
        try:
            present.append(caches.inspect(identity))
        except FileNotFoundError:
            continue  # another process removed it
    return present


def _removed(
    caches: Caches, going: Iterable[tuple[Cache, str, int | None]], dry_run: bool
) -> tuple[list[CacheRow], list[str]]:
    """Remove caches; return a row for each, and the problems of removing files. `going` has each cache with the reason
    and the last use that was seen (None where the last use does not count)."""
    rows = []
    for cache, why, last_used in going:
        action: Action = "removed"
        if cache.in_use:
            action = "in use"
        elif dry_run:
            action = "would be removed"
        elif not caches.take_away(cache.id, secrets.token_hex(8), last_used):
            action = "in use"
        rows.append(CacheRow(cache.id, cache.workdir, cache.bytes, action, why))
    return rows, [] if dry_run else caches.empty_trash()


def _report(rows: Iterable[CacheRow], problems: Iterable[str], as_json: bool) -> None:
    for row in rows:
        if as_json:
            _print(msgspec.structs.asdict(row))
        else:
            print_folded(f"{row.action}: {row.workdir or row.id} ({shown_size(row.bytes)}, {row.reason})")
    for problem in problems:
        report(f"omac: not removed: {problem}")


def _show_table(shown: list[Cache]) -> None:
    cells = [HEADS]
    for cache in sorted(shown, key=lambda cache: cache.bytes, reverse=True):
        size = shown_size(cache.bytes) if cache.counted else f"> {shown_size(cache.bytes)}"
        state = "in use" if cache.in_use else "no marker" if not cache.workdir else ""
        state = state or ("idle" if cache.workdir_exists else "workdir gone")
        at = datetime.fromtimestamp(cache.last_used / 10**9, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        cells.append((cache.workdir or "-", size, at, state, cache.id))
    show_columns(cells)
    report(f"{len(shown)} in all, {shown_size(sum(cache.bytes for cache in shown))}")


def _print(row: Mapping[str, object]) -> None:
    """Print one object in a line. Bytes of a path that are no text are written as escapes."""
    shown = {
        name: value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        if isinstance(value, str)
        else value
        for name, value in row.items()
    }
    print_json(shown)
