"""The user's own git settings, which say who commits: a copy for a confined git, without the secrets in them.

Rules

1. The files that git reads for every repository are copied at their places; what they include, and files that they
   name, to a folder of the sandbox's own, and the settings that name them are changed accordingly. Conditions stay.
2. A setting that holds a credential, or has git run a program that hands one out, is left out. `.git-credentials` is
   never read.
3. A signature is asked for only where the SSH agent can make it. Otherwise commits are left unsigned, with a warning.
4. A file where a sandbox can write may have been written by the last one: its settings count as they do for git
   outside, but no file that they name is read for them, and no link there is followed.
5. Links are followed: the files are the user's own, and many keep them elsewhere. Sizes and numbers are bounded.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.domain.git.config import parse, render
from omac.domain.kernel.paths import below_any
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import COPY, LINK, READ, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = "/run/omac/git"  # inside: copies of what the settings name
FILE_BYTES_MAX = 1 << 18
FILES_MAX = 64
INCLUDES_DEEP_MAX = 10  # as git
REASON = "git's settings, without credentials"

_LEFT_OUT = frozenset(
    ["core.askpass", "core.fsmonitor", "core.gitproxy", "core.sshcommand", "init.templatedir", "http.savecookies"]
)
_LEFT_OUT_OF_HTTP = frozenset(
    ["cookiefile", "extraheader", "proxysslcert", "proxysslkey", "savecookies", "sslcert", "sslkey"]
)
_SECRET_NAMES = ("accesskey", "apikey", "oauth", "passphrase", "passwd", "password", "privatekey", "secret", "token")
_NAMING_A_FILE = frozenset(
    [
        "blame.ignorerevsfile",
        "commit.template",
        "core.attributesfile",
        "core.excludesfile",
        "diff.orderfile",
        "gpg.ssh.allowedsignersfile",
        "gpg.ssh.revocationfile",
        "http.sslcainfo",
        "mailmap.file",
    ]
)
_RUNNING_A_PROGRAM = ("core.pager", "diff.external", "interactive.difffilter")  # git fails where it cannot be found
_SIGNING = ("commit.gpgsign", "push.gpgsign", "tag.forcesignannotated", "tag.gpgsign")
_OF_THE_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/nix/store/", "/gnu/store/", "/etc/")
_PUBLIC_KEYS = (b"ssh-", b"ecdsa-", b"sk-ssh-", b"sk-ecdsa-")


def entries(
    home: str, environment: Mapping[str, str], *, agent: bool, writable: Sequence[str] = ()
) -> tuple[list[Entry], list[str]]:
    """The copies, and what a person should know about them.

    `agent`: the SSH agent can be asked inside. `writable`: canonical folders that a sandbox can write.
    """
    settings = _Settings(home, environment, agent, writable)
    folder = environment.get("XDG_CONFIG_HOME", "")
    folder = f"{folder if folder.startswith('/') else home + '/.config'}/git"
    instead = environment.get("GIT_CONFIG_GLOBAL")
    sources = [(f"{home}/.gitconfig", instead)] if instead else [(f"{folder}/config", ""), (f"{home}/.gitconfig", "")]
    for path, source in sources:
        pairs = settings.read(source or path)
        if pairs is not None:
            settings.files.append((path, pairs))
    copies = settings.copies()
    for name in ("ignore", "attributes"):
        content = settings.content(f"{folder}/{name}")
        if content is not None:
            copies.append((f"{folder}/{name}", content))
    made: list[Entry] = []
    for path, content in copies:
        above, name = os.path.split(path)
        links, real = resolve_symlinks(above)
        made += [Entry(link, LINK, REASON, target=target) for link, target in links]
        made.append(Entry(f"{real}/{name}", COPY, REASON, content=content))
    return made, settings.warnings


def agent_entry(environment: Mapping[str, str]) -> Entry:
    """The socket of the user's SSH agent, and nothing beside it. Raises Refusal (misuse)."""
    path = environment.get("SSH_AUTH_SOCK", "")
    fix = ['eval "$(ssh-agent)"', "ssh-add"]
    if not path.startswith("/"):
        raise Refusal("misuse", "--ssh-agent found no agent: SSH_AUTH_SOCK is not set to a socket", fix=fix)
    try:
        source = resolve_symlinks(path)[1]
        seen = os.lstat(source)
    except OSError as problem:
        raise Refusal("misuse", f"--ssh-agent found no agent at {path}: {problem.strerror}", fix=fix) from None
    if not stat.S_ISSOCK(seen.st_mode):
        raise Refusal("misuse", f"--ssh-agent: SSH_AUTH_SOCK names {path}, which is not a socket", fix=fix)
    if seen.st_uid != os.geteuid():
        raise Refusal("misuse", f"--ssh-agent: the socket {path} belongs to user {seen.st_uid}, not to you", fix=fix)
    return Entry(os.path.normpath(path), READ, "--ssh-agent", source=source)


class _Settings:
    """The settings that were read: `files` are settings by the place they are for; `named` are copies by their path
    inside."""

    def __init__(self, home: str, environment: Mapping[str, str], agent: bool, writable: Sequence[str]) -> None:
        self.files: list[tuple[str, list[tuple[str, str]]]] = []
        self.named: dict[str, bytes] = {}
        self.warnings: list[str] = []
        self._home = home
        self._folders = environment.get("PATH", "").split(":")
        self._agent = agent
        self._writable = writable
        self._read = 0

    def copies(self) -> list[tuple[str, bytes]]:
        """Return the path inside and the content of every file. Call it when all are read: only then is known how
        commits are signed."""
        every = [pair for _, pairs in self.files for pair in pairs]
        formats = [value for key, value in every if key == "gpg.format"]
        signs = self._agent and "ssh" in formats
        if not signs and any(
            key in _SIGNING and value.lower() not in ("false", "no", "off", "0") for key, value in every
        ):
            why = "gpg cannot be reached from a sandbox" if self._agent else "--ssh-agent was not given"
            self.warnings.append(f"commits and tags are not signed: {why}")
        rendered = []
        for path, pairs in self.files:
            kept = [
                (key, self._signing_key(value) if signs and key == "user.signingkey" else value)
                for key, value in pairs
                if signs or key not in _SIGNING
            ]
            rendered.append((path, render(kept).encode("utf-8", "surrogateescape")))
        return [*rendered, *self.named.items()]

    def read(self, path: str, depth: int = 0) -> list[tuple[str, str]] | None:
        """The settings of a file that may be shown; None where there are none. What it includes is read too."""
        content = self.content(path)
        if content is None:
            return None
        try:
            pairs = parse(content.decode("utf-8", "surrogateescape"))
        except ValueError as problem:
            self.warnings.append(f"{path} is left out: {problem}")
            return None
        doubtful = below_any(resolve_symlinks(path)[1], self._writable)
        kept = []
        for key, value in pairs:
            if _is_secret(key, value):
                continue
            section, _, rest = key.partition(".")
            if section in ("include", "includeif") and rest.rpartition(".")[2] == "path":
                included = "" if doubtful else self._include(path, value, depth)
                if included:
                    kept.append((_condition(key, path), included))
            elif _plain(key) in _NAMING_A_FILE:
                kept.append((key, value if doubtful else self._copied(value)))
            elif not (key in _RUNNING_A_PROGRAM or key.startswith("pager.")) or self._is_there(value):
                kept.append((key, value))
            else:
                self.warnings.append(f"{key} is left out: {value.split()[0]} is not there in a sandbox")
        return kept

    def content(self, path: str) -> bytes | None:
        """Return the content of a file; None where it is missing, or, with a warning, where it may not be read."""
        try:
            links, real = resolve_symlinks(path)
            descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            self.warnings.append(f"{path} is left out: {problem.strerror}")
            return None
        with Descriptor(descriptor):
            seen = os.fstat(descriptor)
            self._read += 1
            followed = any(below_any(link, self._writable) for link, _ in links)
            if followed or (self._writable and os.readlink(f"/proc/self/fd/{descriptor}") != real):
                self.warnings.append(f"{path} is left out: a link leads to it that a sandbox could have made")
                return None
            if stat.S_ISREG(seen.st_mode) and seen.st_size <= FILE_BYTES_MAX and self._read <= FILES_MAX:
                return os.read(descriptor, FILE_BYTES_MAX)
        if not stat.S_ISCHR(seen.st_mode):  # /dev/null means none
            self.warnings.append(f"{path} is left out: it is no file, too large, or one too many")
        return None

    def _include(self, path: str, value: str, depth: int) -> str:
        """Return the path, inside, of a copy of an included file; empty without one."""
        target = self._expanded(value)
        if not target.startswith("/"):
            if target.startswith(("~", "%")):
                self.warnings.append(f"{path} includes {value}, which is left out")
                return ""
            target = f"{os.path.dirname(path)}/{target}"
        if depth >= INCLUDES_DEEP_MAX:
            self.warnings.append(f"{target} is left out: it is included through too many files")
            return ""
        pairs = self.read(target, depth + 1)
        if pairs is None:
            return ""
        copy_path = f"{FOLDER}/included-{len(self.files)}"
        self.files.append((copy_path, pairs))
        return copy_path

    def _copied(self, value: str) -> str:
        """A file's path inside, where a copy of it is put; as it was, if there is none."""
        path = self._expanded(value)
        if not path.startswith("/"):
            return value
        content = self.content(path)
        return value if content is None else self._put(path, content)

    def _put(self, path: str, content: bytes) -> str:
        copy_path = f"{FOLDER}/{len(self.named)}-{os.path.basename(path)}"
        self.named[copy_path] = content
        return copy_path

    def _signing_key(self, value: str) -> str:
        """Return `user.signingKey`; where it names a file, the path of a copy of the public key, never of the private
        one."""
        path = self._expanded(value)
        if not path.startswith("/"):
            return value
        for candidate in (path, f"{path}.pub"):
            content = self.content(candidate) if candidate.endswith(".pub") else None
            if content is not None and content.startswith(_PUBLIC_KEYS):
                return self._put(candidate, content)
        self.warnings.append(f"{path}.pub is not there: without it the agent is not asked to sign")
        return value

    def _expanded(self, value: str) -> str:
        return self._home + value[1:] if value == "~" or value.startswith("~/") else value

    def _is_there(self, command: str) -> bool:
        """Return whether a command's program is one of the system's; `true`, `false` and an assignment pass, too."""
        words = command.split()
        if not words or words[0] in ("true", "false") or "=" in words[0]:
            return True
        name = self._expanded(words[0])
        paths = [name] if "/" in name else [f"{folder}/{name}" for folder in self._folders if folder]
        program = next((path for path in paths if os.path.isfile(path)), "")
        return resolve_symlinks(program)[1].startswith(_OF_THE_SYSTEM) if program.startswith("/") else False


def _plain(key: str) -> str:
    """Return a key of http without its URL: `http.<url>.sslcainfo` as `http.sslcainfo`."""
    section, _, rest = key.partition(".")
    return f"http.{rest.rpartition('.')[2]}" if section == "http" else key


def _condition(key: str, path: str) -> str:
    """A condition that is relative to the file it stands in, made absolute: the copy lies elsewhere."""
    for word in ("gitdir:", "gitdir/i:"):
        start = f"includeif.{word}./"
        if key.startswith(start):
            target = resolve_symlinks(path)[1] if os.path.islink(path) else path
            folder = resolve_symlinks(os.path.dirname(target))[1]
            for character in "\\*?[":
                folder = folder.replace(character, "\\" + character)
            return f"includeif.{word}{folder}/{key.removeprefix(start)}"
    return key


def _is_secret(key: str, value: str) -> bool:
    """Return whether a setting holds a credential, or has git run a program that hands one out."""
    section, _, rest = key.partition(".")
    name = rest.rpartition(".")[2]
    letters = "" if section in ("alias", "color") else name.replace("-", "")
    return (
        section == "credential"
        or key in _LEFT_OUT
        or (section == "http" and name in _LEFT_OUT_OF_HTTP)
        or letters.endswith("pass")
        or any(word in letters for word in _SECRET_NAMES)
        or _names_user(key)
        or _names_user(value)
    )


def _names_user(text: str) -> bool:
    """Return whether a URL in a text names a user: over HTTP and FTP any name may be a token, else a password
    counts."""
    before, mark, rest = text.partition("://")
    while mark:
        scheme = before[-5:].lower()
        authority = rest
        for end in "/ \t\n'\"":
            authority = authority.partition(end)[0]
        user, at, _ = authority.rpartition("@")
        if at and (":" in user or scheme.endswith(("http", "https", "ftp", "ftps"))):
            return True
        before, mark, rest = rest.partition("://")
    return False
