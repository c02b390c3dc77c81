"""The files that trusted configuration makes git run or read: they may lie in the tree, and must then stay as they are.

The user's own files count too: `core.hooksPath = .githooks` in `~/.gitconfig` makes that folder of every worktree one.
"""

from __future__ import annotations

import os

from omac.adapters.git import pointers
from omac.domain.git import config
from omac.domain.git.config import general_key
from omac.domain.git.config_list import GitSetting, parsed
from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

INCLUDES_MAX = 64  # files in all
FILE = "file"
FOLDER = "folder"
INCLUDES = ("include.path", "includeif.*.path")
OF_A_REPOSITORY = ("local", "worktree")

READ = {  # files
    "core.attributesfile": "core.attributesFile",
    "gpg.*.allowedsignersfile": "gpg.ssh.allowedSignersFile",  # by which git calls a signature good
    "gpg.*.revocationfile": "gpg.ssh.revocationFile",
}
HOOKS = {"core.hookspath": "core.hooksPath", "init.templatedir": "init.templateDir"}  # of every new repository, too
# what git runs by itself, without being asked for that very thing, by general keys: "*" is any subsection
COMMANDS = frozenset(
    (
        "core.alternaterefscommand",
        "core.fsmonitor",
        "core.gitproxy",
        "core.sshcommand",
        "core.editor",
        "core.pager",
        "core.askpass",
        "sequence.editor",
        "interactive.difffilter",
        "diff.external",
        "diff.*.command",
        "diff.*.textconv",
        "filter.*.clean",
        "filter.*.smudge",
        "filter.*.process",
        "merge.*.driver",
        "gpg.program",
        "gpg.*.program",
        "gpg.*.defaultkeycommand",
        "credential.helper",
        "credential.*.helper",
        "trailer.*.command",
        "trailer.*.cmd",
        "uploadpack.packobjectshook",
        "gc.recentobjectshook",
        "hook.*.command",
        "lfs.*.args",
        "lfs.*.clean",
        "lfs.*.path",
        "lfs.*.smudge",
        "remote.*.annex-rsync-transport",
        "remote.*.receivepack",
        "remote.*.uploadpack",
        "svn.authorsprog",
    )
)
_TOPS = ("$(git rev-parse --show-toplevel)", "`git rev-parse --show-toplevel`", "${PWD}", "$PWD", "$(pwd)", "`pwd`")
_NOT_OF_WORDS = str.maketrans({**dict.fromkeys("\"'", ""), **dict.fromkeys("!`;|&()<>=", " ")})
_OF_ANNEX = ("annex.", "remote.*.annex-")  # of which the names of those that git-annex runs have an ending


class TargetSettings:
    """The settings of some files and of what they include: `pairs` of (general key, value, folder of the file)."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str, str]] = []
        self.files: dict[str, bytes | None] = {}  # every file that was looked at, and what it held
        self.warnings: list[str] = []

    def add(self, path: str, home: str, *, link: bool = False) -> None:
        """Read a file and its includes; `link`: it may be a link. Raises Refusal where git could not read it."""
        if path in self.files or len(self.files) >= INCLUDES_MAX:
            return
        real = os.path.realpath(path) if link else path
        content = pointers.read(real, pointers.CONFIG_BYTES_MAX)
        self.files[path] = content
        if not content:
            return
        try:
            pairs = config.parse(content.decode(errors="surrogateescape"))
        except ValueError as error:
            raise pointers.unsafe(f"{path} is not a configuration that git reads: {error}") from None
        folder = os.path.dirname(real)
        for key, value in pairs:
            general = general_key(key)
            self.pairs.append((general, value, folder))
            if general in INCLUDES:
                self.add_leniently(expanded(value, folder, home), home)

    def add_leniently(self, path: str, home: str) -> None:
        """Read a file that is not the repository's own, and its includes; a refusal becomes a warning. The file may be
        a link."""
        try:
            self.add(path, home, link=True)
        except Refusal as refusal:
            self.warnings.append(refusal.message)


def users(listing: bytes, workdir: str, home: str) -> TargetSettings:
    """Return the settings of the machine, the user and their environment, by git's `listing` in the workdir.

    Files that git includes under a condition that does not hold there, and named files that do not exist yet, are read
    too: for a repository below, or later, they may count. Raises Refusal (git-unsafe).
    """
    settings = TargetSettings()
    listed = [setting for setting in _listed(listing, workdir) if setting.scope not in OF_A_REPOSITORY]
    own = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    named = [os.environ.get(name, "") for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")]
    for path in (*named, f"{own}/git/config", f"{home}/.gitconfig", *(setting.file for setting in listed)):
        if path:
            settings.files[os.path.join(workdir, path)] = None
    for setting in listed:
        folder = os.path.dirname(os.path.realpath(os.path.join(workdir, setting.file))) if setting.file else workdir
        settings.pairs.append((general_key(setting.key), setting.value, folder))
        if general_key(setting.key) in INCLUDES:
            settings.add_leniently(expanded(setting.value, folder, home), home)
    return settings


def of_repository(listing: bytes, workdir: str) -> TargetSettings:
    """Return the settings that the repository of the workdir itself has, by git's `listing`. Raises Refusal
    (git-unsafe)."""
    settings = TargetSettings()
    for setting in _listed(listing, workdir):
        if setting.scope in OF_A_REPOSITORY:
            file = os.path.join(workdir, setting.file)
            settings.files[file] = None
            settings.pairs.append((general_key(setting.key), setting.value, os.path.dirname(file)))
    return settings


def hooks_folder(listing: bytes, root: str, home: str) -> str:
    """Return the folder that `core.hooksPath` names for the worktree `root`; empty where it is not set."""
    values = [setting.value for setting in _listed(listing, root) if setting.key == "core.hookspath"]
    return expanded(values[-1], root, home) if values and values[-1] else ""


def _listed(listing: bytes, workdir: str) -> list[GitSetting]:
    try:
        return parsed(listing)
    except ValueError as error:
        raise pointers.unsafe(f"git -C {workdir} config --list: {error}") from None


def targets(settings: TargetSettings, root: str, home: str) -> list[tuple[str, str, str]]:
    """Return (path, FILE or FOLDER or "", key) for all that the settings make git run or read for the worktree `root`.

    "" is for a path that is a file or a folder only if it exists.
    """
    paths: list[tuple[str, str, str]] = [(path, FILE, "configuration") for path in settings.files]
    for key, value, _folder in settings.pairs:
        if key in HOOKS and value:
            paths.append((expanded(value, root, home), FOLDER, HOOKS[key]))
        elif key in READ and value:
            paths.append((expanded(value, root, home), FILE, READ[key]))
        elif _is_command(key, value):
            paths += [(path, made, key) for path, made in _of_command(value, root, home)]
    return paths


def _is_command(key: str, value: str) -> bool:
    if key == "submodule.*.update":
        return value.startswith("!")
    of_annex = key.startswith(_OF_ANNEX) and key.endswith("command")
    return key in COMMANDS or key.startswith("pager.") or of_annex


def _of_command(value: str, root: str, home: str) -> Iterator[tuple[str, str]]:
    """Yield the paths in a command, each with FILE where it must not come to be: the program itself.

    A word without a slash is no folder: `gh auth git-credential` means none of that name. A program of such a name is
    of PATH, or git's own.
    """
    for number, word in enumerate(word.strip("'\"!") for word in value.split()):
        path = expanded(word, root, home)
        if word and word[0] != "-" and ("/" in word or (number > 0 and not os.path.isdir(path))):
            yield path, FILE if number == 0 else ""
    for word in _parts(value, root):
        path = expanded(word, root, home)
        if "/" in word and not os.path.isdir(path):
            yield path, ""


def _parts(value: str, root: str) -> list[str]:
    """The words of a command, as a shell would take them apart, in which `$PWD` and the like are the worktree: there
    git runs it."""
    for top in _TOPS:
        value = value.replace(top, "\0")
    return [word.replace("\0", root) for word in value.translate(_NOT_OF_WORDS).split()]


def expanded(value: str, folder: str, home: str) -> str:
    """A path of a setting, absolute: `~/` is the home, what is relative starts at `folder`."""
    if value == "~" or value.startswith("~/"):
        value = home + value[1:]
    elif value.startswith("%(prefix)/"):
        value = "/usr" + value[9:]
    return os.path.normpath(os.path.join(folder, value.replace("\0", "")))
