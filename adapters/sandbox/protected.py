"""Places that a broad grant does not include: credentials, histories, start-up files, sockets of other programs.

Who names such a place, or something in it, gets it; who names a folder that merely contains it does not. A grant of a
whole home, or of a folder above homes, includes nothing there whose name begins with a dot: no list is complete.

Where a home's settings are links into a folder that can be written (dotfiles in a repository, say), the program cannot
change what they lead to: programs of the host, git and ssh among them, obey it.
"""

from __future__ import annotations

import os
import stat
from itertools import islice

from omac.adapters.files.sockets import is_socket
from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.domain.harness.table import HARNESSES
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import DENY, LINK, READ, SOCKETS_OUTSIDE, WRITE, Entry, access_at, governing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOMES_MAX = 1_000  # of other users
_CREDENTIALS = """
    .Xauthority .ICEauthority .age .aws .azure .boto .cargo/credentials .cargo/credentials.toml .config/1Password
    .config/age .config/containers .config/doctl .config/fly .config/gcloud .config/gh .config/git/credentials
    .config/glab-cli .config/goa-1.0 .config/hcloud .config/heroku .config/hub .config/omac .config/op .config/rclone
    .config/sops .credentials .databrickscfg .docker .env .envrc .fly .gcloud .gem/credentials .git-credentials .gnupg
    .gradle/gradle.properties .keys .kube .local/share/keyrings .local/share/kwalletd .local/share/pass
    .local/state/omac .m2/settings-security.xml .m2/settings.xml .my.cnf .netlify .netrc .npmrc .oci .password-store
    .pgpass .pki .putty .pypirc .s3cfg .secrets .snowflake .ssh .terraform.d .terraformrc .vault-token .vercel
"""
_BROWSERS = """
    .config/BraveSoftware .config/chromium .config/google-chrome .config/microsoft-edge .config/opera .config/vivaldi
    .mozilla .thunderbird .var/app snap
"""
_HISTORIES = """
    .bash_history .histfile .irb_history .lesshst .local/share/fish .mysql_history .node_repl_history .psql_history
    .python_history .rediscli_history .sqlite_history .viminfo .zhistory .zsh_history
"""
_START_UP = """
    .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .config/autostart .config/environment.d .config/fish
    .config/systemd .cshrc .kshrc .local/share/systemd .login .pam_environment .profile .tcshrc .xinitrc .xprofile
    .xsession .xsessionrc .zlogin .zlogout .zprofile .zshenv .zshrc
"""
_SOCKETS = """
    /run/containerd /run/crio /run/dbus /run/docker /run/docker.sock /run/podman /run/snapd.socket /run/systemd
    /run/user /tmp/.X11-unix /var/run/docker.sock
"""
SOCKETS = tuple(_SOCKETS.split())
TEMPORARY = ("/tmp", "/var/tmp", "/run")  # noqa: S108  # where tmux, ssh-agent, editors and the like have their sockets
TEMPORARY_DEPTH = 2
TEMPORARY_ENTRIES_MAX = 100_000  # that are searched for them; an agent may have left any number there
_AGENTS = tuple(path.rstrip("/") for harness in HARNESSES for path in (*harness.folders, *harness.protected))
STARTED = (  # folders of files that a login runs: they are kept from being made, too
    ".config/autostart", ".config/environment.d", ".config/fish", ".config/systemd", ".local/share/systemd",
)  # fmt: skip
SETTINGS_ENTRIES_MAX = 5_000  # of one folder that are searched for links: some folders are an agent's own
LINKS_NAMED = 3  # in a warning
_SEARCHED = (*STARTED, ".config/git", ".config/omac", ".gnupg", ".ssh")  # each two folders deep
_PRIVATE = f"{_CREDENTIALS}{_BROWSERS}{_HISTORIES}{_START_UP}".split()
NAMES = (*_PRIVATE, *_AGENTS)  # relative to the home
_IN_PRIVATE = tuple(f"{name}/" for name in _PRIVATE)
_IN_NAMES = tuple(f"{name}/" for name in NAMES)


def protected_entries(home: str, entries: Sequence[Entry]) -> list[Entry]:
    """DENY for every protected place that an entry for a folder above it would show, and no entry names.

    A place that is a link is where it leads to; one that is not there needs no word, but for folders that a login looks
    into, where it could be made. Raises Refusal (policy-too-large).
    """
    shown = [entry.path for entry in entries if entry.access in (READ, WRITE)]
    within = tuple(path.rstrip("/") + "/" for path in shown)
    named = {entry.path for entry in entries}
    denied: dict[str, Entry] = {}
    # /var/run is a link; what lies in /tmp may be anybody's, so that only folders are resolved
    sockets = [f"{resolve_symlinks(os.path.dirname(path))[1]}/{os.path.basename(path)}" for path in SOCKETS]
    for path in (*_in_home(home), *sockets):
        if path.startswith(within) and path not in named and access_at(entries, path) in (READ, WRITE):
            denied[path] = Entry(path, DENY, "credentials, histories and the like are not part of a broader grant")
    for name in STARTED:
        path = f"{home}/{name}"
        missing = not os.path.lexists(path) and os.path.isdir(os.path.dirname(path))
        if missing and path not in named and access_at(entries, path) == WRITE:
            denied[path] = Entry(path, DENY, "files in it run at the next login", made="folder")
    for path in _listening(entries, named):
        denied[path] = Entry(path, DENY, SOCKETS_OUTSIDE)
    return list(denied.values())


def dot_entries(home: str, entries: Sequence[Entry]) -> list[Entry]:
    """DENY for what begins with a dot in a home that is shown as a whole, and for what a link of such a name leads to.

    What an entry names is left out. `home` is the user's; others are those beside it, and where they usually are.
    """
    named = {entry.path for entry in entries if entry.access != LINK}
    denied: dict[str, Entry] = {}
    for folder in _homes(home, entries):
        around = _showing(entries, folder)
        for name in _names(folder) if around else ():
            path = f"{folder}/{name}"
            real = resolve_symlinks(path)[1] if name[0] == "." else path
            if name[0] == "." and real not in named and not below(folder, real) and governing(entries, real) is around:
                denied[real] = Entry(real, DENY, "a grant of a home does not include what begins with a dot: name it")
    return list(denied.values())


def linked_entries(home: str, entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """Return entries for what links among the home's settings lead to, where the program may write, and warnings.

    It is readable; DENY where a protected place links to it. What an entry names is left out.
    """
    writable = tuple(f"{entry.path}/" for entry in entries if entry.access == WRITE)
    named = {entry.path for entry in entries if entry.access != LINK}
    kept: dict[str, Entry] = {}
    readable: list[str] = []
    warnings: list[str] = []
    for path in _links(home):
        try:
            links, real = resolve_symlinks(path)
        except OSError:
            continue  # in circles: no program reads it
        for link, _ in links:
            if link.startswith(writable) and access_at(entries, link) == WRITE:
                warnings.append(f"{path} leads through {link}, a link that the program can change: name its target")
        if real in named or real in kept or not real.startswith(writable) or not os.path.lexists(real):
            continue
        if access_at(entries, real) != WRITE:
            continue
        name = path.removeprefix(f"{home}/")
        if f"{name}/".startswith(_IN_PRIVATE):
            kept[real] = Entry(real, DENY, f"~/{name} leads to it")
        else:
            kept[real] = Entry(real, READ, f"~/{name} leads to it, and programs outside obey it")
            readable.append(real)
    if readable:
        more = f" and {len(readable) - LINKS_NAMED} more" if len(readable) > LINKS_NAMED else ""
        warnings.append(
            f"links in your home lead to {', '.join(readable[:LINKS_NAMED])}{more}: the program can read, not change, "
            "what they lead to; --allow grants a path that it names"
        )
    return list(kept.values()), warnings


def second_names(entries: Sequence[Entry]) -> list[str]:
    """Return warnings of files that the program may not write, in folders where it may, which have another name."""
    warnings = []
    for entry in entries:
        if entry.access not in (READ, DENY) or entry.source != entry.path:
            continue
        try:
            status = os.lstat(entry.path)
        except OSError:
            continue  # it is made
        is_shared = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
        if is_shared and access_at(entries, os.path.dirname(entry.path)) == WRITE:
            warnings.append(
                f"{entry.path} has another name (a hard link): where the program may write that, it changes this file"
            )
    return warnings


def contains_protected(folder: str, home: str) -> bool:
    """Return whether a canonical folder is a protected place, contains one or lies in one, even if that does not exist
    now."""
    if below(home, folder):
        return True
    if not below(folder, home):
        return False
    name = folder[len(home) + 1 :] + "/"
    return name.startswith(_IN_NAMES) or any(protected.startswith(name) for protected in _IN_NAMES)


def _homes(home: str, entries: Sequence[Entry]) -> list[str]:
    """The user's home, and other users' where a folder above them is shown."""
    homes = [home, "/root"]
    for parent in (os.path.dirname(home), "/home"):
        if _showing(entries, parent):
            homes += [f"{parent.rstrip('/')}/{name}" for name in _names(parent)[:HOMES_MAX]]
    return list(dict.fromkeys(homes))


def _links(home: str) -> Iterator[str]:
    """Yield the links of a home whose names begin with a dot, and those in folders of settings."""
    folders = [(home, 0), (f"{home}/.config", 1), *((f"{home}/{name}", 2) for name in _SEARCHED)]
    seen: set[str] = set()
    while folders:
        folder, deeper = folders.pop(0)
        try:
            with os.scandir(folder) as listing:
                settings = (item for item in listing if folder != home or item.name[0] == ".")
                for item in islice(settings, SETTINGS_ENTRIES_MAX):
                    if item.is_symlink() and item.path not in seen:
                        seen.add(item.path)
                        yield item.path
                    elif deeper and item.is_dir(follow_symlinks=False):
                        folders.append((item.path, deeper - 1))
        except OSError:
            continue  # it does not exist, or is no folder


def _listening(entries: Sequence[Entry], named: set[str]) -> Iterator[str]:
    """Yield the sockets in shared temporary folders that are shown as a whole, and the folders in these that have
    sockets: who connects to one acts outside. Folders that hold what an entry names are left out. Raises Refusal
    (policy-too-large): a search that an agent could end would show it the sockets behind."""
    left = TEMPORARY_ENTRIES_MAX
    for top in filter(lambda folder: _showing(entries, folder), TEMPORARY):
        folders = [(top, 0)]
        while folders:
            folder, depth = folders.pop(0)
            try:
                with os.scandir(folder) as listing:
                    items = list(islice(listing, left + 1))
            except OSError:
                continue
            left -= len(items)
            if left < 0:
                message = f"{top} has more than {TEMPORARY_ENTRIES_MAX} files: too many to find the sockets in it"
                fix = [f"ls {top}  # what to grant in its place, or to remove"]
                raise Refusal("policy-too-large", message, fix=fix)
            sockets = [item.path for item in items if is_socket(item) and item.path not in named]
            if sockets and depth and not any(below(path, folder) for path in named):
                yield folder
                continue
            yield from sockets
            if depth < TEMPORARY_DEPTH:
                inner = [item.path for item in items if item.is_dir(follow_symlinks=False)]
                folders += [(path, depth + 1) for path in inner if path not in named]


def _showing(entries: Sequence[Entry], path: str) -> Entry | None:
    """The entry by which a canonical path can be read."""
    around = governing(entries, path)
    return around if around is not None and around.access in (READ, WRITE) else None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # nor can it be listed inside


def _in_home(home: str) -> list[str]:
    """The canonical paths of the places in a home that are there."""
    names: dict[str, list[str]] = {}  # by the folder that they are in
    for name in NAMES:
        above, _, last = name.rpartition("/")
        names.setdefault(above, []).append(last)
    paths = []
    for above, lasts in names.items():
        folder = resolve_symlinks(f"{home}/{above}")[1]
        try:
            there = set(os.listdir(folder))  # one call instead of one for each name
        except OSError:
            continue
        paths += [resolve_symlinks(f"{folder}/{last}")[1] for last in lasts if last in there]
    return paths
