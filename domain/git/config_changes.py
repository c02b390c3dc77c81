"""The settings that were made inside and are set on the host when the program has ended.

Rules

1. Only settings of the allowlist (config_allowlist.py) are set: they name no program and no place.
2. A branch's settings count where the branch is new, or checked out in the worktree. For a branch that is checked out,
   `remote` names a remote that the host has. For a new one it may also name a remote that is copied back with its URL:
   git takes another name for a path. A branch that is gone loses its settings.
3. The settings that make the repository one, its format, stay as they are: without them git would not read the rest.
   The exception is `extensions.worktreeConfig`, which may be turned on.
4. The places of the host's remotes and submodules, and the refs that are fetched and pushed there, stay as they are. A
   new remote or submodule may be added, with a URL. On this machine the URL leads where one of the host's does: with
   any other, `git fetch --all` would copy the content of that place into the project.
5. A setting that has git sign, or verify what it gets, is not turned off, nor are files of git's opened to a group: the
   host's next commits and fetches would be done without it.
6. Every other setting stays as it is on the host, and is reported.
"""

from __future__ import annotations

from itertools import accumulate

from omac.domain.git.config import parse
from omac.domain.git.config_allowlist import allowed, lacks_remote, leads_out, remotes_of
from omac.domain.kernel import PlainData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

CHANGES_MAX = 200
STAYS = "was set inside; the host's setting is as it was"
REMOVED = "was removed inside; the host's setting is as it was"
_LEADS_ELSEWHERE = frozenset(("fetch", "mirror", "push", "pushurl", "url"))
_FORMAT = ("core.bare", "core.repositoryformatversion", "extensions.")
_MAY_BE_TURNED_ON = "extensions.worktreeconfig"  # sparse-checkout does
_GUARDS = frozenset((
    "commit.gpgsign", "fetch.fsckobjects", "merge.verifysignatures", "push.gpgsign", "receive.fsckobjects",
    "tag.gpgsign", "transfer.fsckobjects",
))  # fmt: skip
_ON = ("true", "yes", "on", "1", "if-asked")
_RIGHTS = "core.sharedrepository"
_NAMES_A_REMOTE = ("checkout.defaultremote", "remote.pushdefault")


class Branches(PlainData):
    """Branches by their names: `known` at launch, `own` are checked out in the worktree, `now` at the end. None: which
    there are is not known, so any may be one of them."""

    known: Collection[str] | None
    own: Collection[str]
    now: Collection[str] | None


class ConfigChanges:
    """`wanted` are (key, its values, none where it is removed) to set on the host, `refused` are (key, why not)."""

    def __init__(self) -> None:
        self.wanted: list[tuple[str, list[str]]] = []
        self.refused: list[tuple[str, str]] = []


def changes(before: bytes, after: bytes, branches: Branches) -> ConfigChanges:
    """Return what was changed between two configurations. Raises ValueError for one that git could not read."""
    old, new = _values(before), _values(after)
    remotes = remotes_of((key, "") for key in old)
    urls = {value for key, values in old.items() if key.endswith(".url") for value in values}
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    counted = [key for key in _first(changed, new) if not _lead_out(key, new.get(key, []), urls)]
    home = {key for key in counted if _is_copied_back(key, new.get(key, []), old.get(key, []), remotes, branches)}
    all_remotes = remotes | remotes_of((key, "") for key in home if key in new)
    result = ConfigChanges()
    for key in changed:
        values = new.get(key, [])
        if key in home and not any(lacks_remote(key, value, all_remotes) for value in values):
            result.wanted.append((key, values))
        else:
            result.refused.append((key, STAYS if values else REMOVED))
    return result


def _first(keys: list[str], new: dict[str, list[str]]) -> list[str]:
    """Return the first keys that have CHANGES_MAX values together: each value costs a start of git."""
    sums = accumulate(max(1, len(new.get(key, ()))) for key in keys)
    return [key for key, values in zip(keys, sums, strict=True) if values <= CHANGES_MAX]


def _values(content: bytes) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for key, value in parse(content.decode(errors="surrogateescape")):
        if "." not in key:
            raise ValueError(f"{key!r} is in no section")
        values.setdefault(key, []).append(value)
    return values


def _lead_out(key: str, values: list[str], urls: set[str]) -> bool:
    return any(leads_out(key, value, urls.__contains__) for value in values)


def _is_copied_back(key: str, values: list[str], then: list[str], remotes: frozenset[str], branches: Branches) -> bool:
    section, _, rest = key.partition(".")
    sub, _, name = rest.rpartition(".")
    if key.startswith(_FORMAT) and not (key == _MAY_BE_TURNED_ON and values == ["true"]):
        return False
    if key == _RIGHTS or (key in _GUARDS and not (values and all(value.lower() in _ON for value in values))):
        return False
    if section == "branch" and sub and not values and branches.now is not None and sub not in branches.now:
        return True
    if not all(allowed(key, value) for value in (*values, *then)):
        return False
    if section == "branch" and sub and (branches.known is None or sub in branches.known):
        known = name not in ("remote", "pushremote") or all(value in (".", *remotes) for value in values)
        return sub in branches.own and known
    if section == "remote" and sub in remotes and name in _LEADS_ELSEWHERE:
        return False
    if section == "submodule" and name == "url" and then and values:
        return False
    return key not in _NAMES_A_REMOTE or all(value in remotes for value in values)
