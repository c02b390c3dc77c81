"""The parts of the system that every sandbox shows, and those of the home that it shows for its harness.

Rules

1. Of the system, a sandbox shows programs, libraries and settings that every user may read. A sandbox of root shows no
   more than that.
2. Of the home, of /tmp and of /run, a sandbox shows nothing: they are empty folders of its own.
3. Of a harness, a sandbox shows what the harness must write to keep its login and its sessions. Files and folders that
   run code later, here or outside, are pinned. Missing ones are made empty, so that a session cannot leave them for the
   next one. Scripts that the harness's settings name are pinned too.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.domain.harness.table import PROJECT_SETTINGS
from omac.domain.kernel.paths import below
from omac.domain.sandbox.confinement import DENY, LINK, PRIVATE, READ, WRITE, Entry, access_at
from omac.domain.sandbox.environment import CERTIFICATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from omac.domain.harness.harness import Harness

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/gnu/store")
OWN = ("/tmp", "/var/tmp", "/run")  # noqa: S108  # folders of the sandbox's own
ITEMS_MAX = 200  # of a folder that is shown item by item
LED_OUT_OF_ETC = (  # files that the name service or a library of certificates keeps elsewhere, behind a link in /etc
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/etc/ssl/ca-bundle.pem",
    "/etc/localtime",
    "/run/current-system",
)
SETTINGS_OF_SYSTEM = ("/etc", "/usr/local/etc")  # where root keeps credentials beside what everybody may read
ENTRIES_MAX = 20_000  # that are searched for what only root may read
_OTHERS_MAY_READ = 0o004


def system_entries(environment: Mapping[str, str], uid: int, writable: Sequence[str] = ()) -> list[Entry]:
    """The system's own folders, the empty ones in their place, and the files of certificates that variables name.

    `writable`: canonical folders that a sandbox can write; no link in one is followed.
    """
    entries = [Entry(path, PRIVATE, "a folder of its own") for path in OWN]
    for path in SYSTEM:
        try:
            entries.append(Entry(path, LINK, "the system", target=os.readlink(path)))
        except OSError:  # not a link
            if os.path.isdir(path):
                entries.append(Entry(path, READ, "the system"))
    if uid == 0:
        entries += [Entry(path, DENY, "only root may read it") for path in _only_for_root()]
    for path in LED_OUT_OF_ETC:
        entries += readable(path, "the system")
    for name in CERTIFICATES:
        for path in environment.get(name, "").split(":" if name == "SSL_CERT_DIR" else "\0"):
            if path.startswith("/"):
                links, real = resolve_symlinks(path)
                loose = any(below(link, folder) for link, _ in links for folder in writable)
                if not loose and not below(resolve_symlinks(environment.get("HOME") or "/")[1], real):
                    entries += readable(path, f"certificates, as {name} says")
    return uncovered([], entries)


def home_entry(home: str) -> Entry:
    """The home as an empty folder of the sandbox's own."""
    return Entry(resolve_symlinks(home)[1], PRIVATE, "a home of its own")


def harness_entries(harness: Harness, home: str, environment: Mapping[str, str]) -> tuple[list[Entry], list[str]]:
    """Return the entries for files and folders that a harness keeps in the home, and warnings. Missing ones are made
    for as long as the session lasts."""
    granted: list[Entry] = []
    warnings: list[str] = []
    for relpath in harness.folders:
        path = harness.place_of(relpath, home, environment)
        if _access_around(path, granted) != WRITE:  # what lies in a folder that it may write needs no word of its own
            granted += _kept(path, WRITE, f"what {harness.name} keeps", home, granted)
    alternatives = [harness.place_of(relpath, home, environment) for relpath in harness.alternatives]
    ending = "/" if any(map(os.path.lexists, alternatives)) else ""
    named = [f"{relpath}{ending}" for relpath in harness.alternatives]
    parts = (*harness.pinned, *named, *harness.added_to, *harness.apart)
    for relpath, path in ((part, path) for part in parts for path in _paths(part, harness, home, environment)):
        if not os.path.lexists(path) and not _access_around(os.path.dirname(path.rstrip("/")), granted):
            continue
        loose = _loose_link(path, granted)
        if loose:
            warnings.append(loose)
        elif relpath in harness.apart:
            granted += _kept(
                path, PRIVATE, f"{harness.name} runs the files in it: each session has its own", home, granted
            )
        elif relpath in harness.added_to:
            granted += _kept(path, PRIVATE, f"what {harness.name} adds is gone with the session", home, granted)
            granted += _items(resolve_symlinks(path)[1], f"instructs {harness.name}")
        else:
            granted += _kept(path, READ, f"runs code for {harness.name}, or instructs it", home, granted)
    from omac.adapters.sandbox.harness_scripts import named_scripts  # only where there is a harness

    settings = [path for name in harness.settings for path in _paths(name, harness, home, environment)]
    variables = {"HOME": home.rstrip("/")}
    if harness.home_variable:
        variables[harness.home_variable] = harness.place_of(harness.folders[0], home, environment).rstrip("/")
    scripts, unread = named_scripts(settings, variables, granted)
    warnings += unread
    for path in scripts:
        loose = _loose_link(path, granted)
        if loose:
            warnings.append(loose)
        else:
            granted += _kept(path, READ, f"a command of {harness.name}'s settings", home, granted)
    return placed(granted), warnings


def files_of_settings(
    project: str, home: str, environment: Mapping[str, str], harness: Harness | None
) -> dict[str, str]:
    """Return the files of a project that settings name, with who obeys them: settings in the project, the user's of the
    harness, and start-up files of the home."""
    from omac.adapters.sandbox.named_files import OF_A_PERSON, OF_A_PROJECT, named_files  # while the sandbox is built

    real = resolve_symlinks(home)[1]
    agents = [f"{project}/{name}" for name in PROJECT_SETTINGS]
    if harness:
        agents += [path for name in harness.settings for path in _paths(name, harness, home, environment)]
    named = [("an agent", named_files(agents, project, real, is_relative=True))]
    for folder, table in ((project, OF_A_PROJECT), (home, OF_A_PERSON)):
        for who, names in table.items():
            files = [f"{folder}/{name}" for name in names.split()]
            named.append((who, named_files(files, project, real, is_relative=folder == project)))
    return {path: f"{who}, as its settings name it," for who, paths in named for path in paths}


def _loose_link(path: str, entries: Sequence[Entry]) -> str:
    """The warning of a link on the way to a path that an earlier session may have made, and chosen where it leads."""
    for link, _ in resolve_symlinks(path)[0]:
        if _access_around(link, entries) == WRITE:
            why = "in a folder that sessions may write: it is not followed, and cannot be pinned"
            return f"{link} is a link {why}; put its target in its place"
    return ""


def readable(path: str, reason: str) -> list[Entry]:
    """Return the entries that make an absolute path readable under this name: its links, and their final target. Return
    none if the target does not exist."""
    links, real = resolve_symlinks(path)
    if not os.path.exists(real):
        return []
    return [*(Entry(link, LINK, reason, target=target) for link, target in links), Entry(real, READ, reason)]


def uncovered(entries: Iterable[Entry], more: Iterable[Entry]) -> list[Entry]:
    """Return those of `more` that show something: without what `entries`, or others of `more`, show or deny anyway.

    For what omac grants by itself: it neither narrows nor widens what a person granted or denied there.
    """
    deciding = [entry for entry in entries if entry.access != LINK]
    wanted = {entry.path: entry for entry in more}
    added: list[Entry] = []
    for path in sorted(wanted, key=len):
        entry = wanted[path]
        around = access_at(deciding, path)
        if around in ("", PRIVATE) or (entry.access not in (READ, LINK) and around != DENY):
            added.append(entry)
            if entry.access != LINK:
                deciding.append(entry)
    return added


def placed(entries: Sequence[Entry]) -> list[Entry]:
    """`entries` without links in folders that are shown as they are on the host: the links are there."""
    return [
        entry for entry in entries if entry.access != LINK or _access_around(entry.path, entries) not in (READ, WRITE)
    ]


def exposed(own: Iterable[Entry], entries: Sequence[Entry]) -> list[str]:
    """Warnings of omac's `own` files that lie where the program may write."""
    writable = [entry.path for entry in entries if entry.access == WRITE]
    exposed_paths = [
        entry.path
        for entry in own
        if entry.access != LINK
        and (_access_around(entry.path, entries) == WRITE or any(below(path, entry.path) for path in writable))
    ]
    return [
        f"{path} is part of omac, and the program may change it: it decides what omac does next"
        for path in exposed_paths
    ]


def _access_around(path: str, entries: Sequence[Entry]) -> str:
    """Return the access that applies to `path`, links apart; empty if nothing is shown there."""
    return access_at((entry for entry in entries if entry.access != LINK), path)


def _only_for_root() -> list[str]:
    """Return the paths in SETTINGS_OF_SYSTEM that other users may not read; past ENTRIES_MAX, each folder that was not
    searched. Folders that lie higher are searched first."""
    paths: list[str] = []
    left = ENTRIES_MAX
    waiting = [folder for folder in SETTINGS_OF_SYSTEM if os.path.isdir(folder) and not os.path.islink(folder)]
    while waiting and left > 0:
        below_it: list[str] = []
        for folder in waiting:
            items = _modes(folder)
            left -= len(items)
            paths += [path for path, mode in items if not mode & _OTHERS_MAY_READ]
            below_it += [path for path, mode in items if mode & _OTHERS_MAY_READ and stat.S_ISDIR(mode)]
        waiting = below_it
    return [*paths, *waiting]


def _modes(folder: str) -> list[tuple[str, int]]:
    """Return the files and folders in a folder, without links, and their modes."""
    items: list[tuple[str, int]] = []
    try:
        listing = os.scandir(folder)
    except FileNotFoundError:
        return items
    with listing:
        for item in listing:
            try:
                mode = item.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            if not stat.S_ISLNK(mode):
                items.append((item.path, mode))
    return items


def _paths(relpath: str, harness: Harness, home: str, environment: Mapping[str, str]) -> list[str]:
    """The absolute paths of what the table says: of a name with "*", those of the files that are there, the ITEMS_MAX
    that were changed longest ago. A session can make others, and cannot have made those earlier."""
    path = harness.place_of(relpath, home, environment)
    folder, name = os.path.split(path)
    beginning, star, ending = name.partition("*")
    if not star:
        return [path]
    try:
        with os.scandir(folder) as listing:
            items = [
                (item.stat(follow_symlinks=False).st_ctime_ns, item.path)
                for item in listing
                if item.name.startswith(beginning) and item.name.endswith(ending) and item.is_file()
            ]
    except OSError:
        return []
    return [path for _, path in sorted(items)[:ITEMS_MAX]]


def _items(folder: str, reason: str) -> list[Entry]:
    """READ for each item of a folder, links as they are; not for what begins with a dot."""
    try:
        with os.scandir(folder) as listing:
            items = [(item.path, item.is_symlink()) for item in listing if not item.name.startswith(".")]
    except OSError:
        return []
    return [
        Entry(path, LINK, reason, target=os.readlink(path)) if is_link else Entry(path, READ, reason)
        for path, is_link in items[:ITEMS_MAX]
    ]


def _kept(path: str, access: str, reason: str, home: str, known: Sequence[Entry]) -> list[Entry]:
    """An entry for a path as `_place` gives it, made where it is missing, with the links and folders on its way.

    What `known` entries make is there.
    """
    links, real = resolve_symlinks(path)
    entries = [Entry(link, LINK, reason, target=target) for link, target in links]
    if os.path.lexists(real):
        return [*entries, Entry(real, access, reason)]
    there = {entry.path for entry in known}
    folder = os.path.dirname(real)
    while folder not in there and not os.path.lexists(folder):
        entries.append(Entry(folder, READ, reason, made="folder"))
        folder = os.path.dirname(folder)
    if not below(folder, resolve_symlinks(home)[1]) and not _access_around(folder, known):
        return []  # nothing is made outside the home, but in what was moved out of it
    made = "folder" if path.endswith("/") else "file"
    return [*entries, Entry(real, access, reason, made=made, content=_nothing(os.path.basename(real)))]


def _nothing(name: str) -> bytes:
    """Return the content of a file that is made: valid, and it says nothing. Copilot demands a list of servers."""
    if not name.endswith(".json"):
        return b""
    return b'{"mcpServers": {}}\n' if name.startswith("mcp") else b"{}\n"
