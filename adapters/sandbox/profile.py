"""A profile: a file of the user's own that says what a sandbox is given, in TOML or JSON, as flags would.

    allow = ["~/.cache/huggingface"]          # may be read and changed
    read = ["~/.rustup", "$GOROOT"]
    deny = ["~/projects/shop/secrets"]
    deny_names = ["*.pem"]                    # hidden wherever they lie
    allow_env_files = true                    # shows .env and the like
    env = ["AWS_PROFILE", "NODE_ENV=test"]    # or a table: NODE_ENV = "test", AWS_PROFILE = true
    network = "none"                          # or "host"
    open_ports = [3000, "8000-8010"]
    backend = "bubblewrap"
    limits = { pids = 500, memory = "4G", cpu = 2, files = 4096 }
    git = { hooks = "read", refs = "branch" }
    cache = { redirect_xdg = true }

It decides what an agent may do, so none that an agent or another user could have written counts. A name or a word that
does not exist is refused; a path that is not there is left out, and that is told.
"""

from __future__ import annotations

import json
import os
import tomllib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from omac.adapters.files import bounded
from omac.adapters.sandbox import limits
from omac.domain.kernel import PlainData, state_paths
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.sandbox.confinement import BACKENDS, LIMITS, NETWORKS
from omac.domain.sandbox.hidden_names import check_pattern
from omac.domain.sandbox.listening import PORT_MAX, port_or_range
from omac.domain.sandbox.request import SandboxRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FOLDER = "sandbox-profiles"
SUFFIXES = (".toml", ".json")
BYTES_MAX = 64 * 1024
WORDS = {  # of a key, or of a key in a table: what it takes
    "backend": BACKENDS,
    "network": NETWORKS,
    "git.hooks": ("deny", "read"),
    "git.refs": ("all", "branch"),
}
TABLES: dict[str, tuple[str, ...]] = {"cache": ("redirect_xdg",), "git": ("hooks", "refs"), "limits": LIMITS}
PATHS = ("allow", "read", "deny")
KEYS = (*PATHS, "deny_names", "allow_env_files", "env", "network", "open_ports", "backend", *TABLES)


def read(name: str, environment: Mapping[str, str], home: str, workdir: str) -> SandboxRequest:
    """The profile of that name in ~/.config/omac/sandbox-profiles, or at a path. Raises Refusal (settings-invalid)."""
    path = _path(name, environment, home)
    real = os.path.realpath(path)
    if below(path, workdir) or below(real, workdir):
        message = f"the profile {_shown(path)} lies in {workdir}, where an agent may have written it"
        folder = _folder(environment, home)
        fix = [f"{_maker_of(folder)}mv {quoted(path)} {quoted(folder)}/"]
        raise Refusal("settings-invalid", message, fix=fix)
    text = _text(path)
    return _ProfileReader(path, text, environment, home).request()


def _folder(environment: Mapping[str, str], home: str) -> str:
    return f"{state_paths.configuration(environment, home)}/{FOLDER}"


def _maker_of(folder: str) -> str:
    """The begin of a command that needs a folder: it makes the folder, where that is missing."""
    return "" if os.path.isdir(folder) else f"mkdir -p {quoted(folder)} && "


def _path(name: str, environment: Mapping[str, str], home: str) -> str:
    """The file that is meant. Raises Refusal (settings-invalid) for a name that no file has."""
    if "/" in name or name.endswith(SUFFIXES):
        return os.path.abspath(home + name[1:] if name.startswith("~/") else name)
    folder = _folder(environment, home)
    for suffix in SUFFIXES:
        if os.path.lexists(f"{folder}/{name}{suffix}"):
            return os.path.abspath(f"{folder}/{name}{suffix}")
    try:
        known = sorted({os.path.splitext(file)[0] for file in os.listdir(folder) if file.endswith(SUFFIXES)})
    except OSError:
        known = []
    near = _near(name, known) or (f"; known: {', '.join(known[:8])}" if known else "")
    message = f"no profile named {_shown(name)} in {folder}{near}"
    fix = [f"{_maker_of(folder)}${{EDITOR:-vi}} {quoted(f'{folder}/{name}.toml')}"]
    raise Refusal("settings-invalid", message, fix=fix)


def _text(path: str) -> str:
    """Return the text of a profile. Raises Refusal (settings-invalid)."""
    shown = _shown(path)
    look = [f"ls -l {quoted(path)}"]
    try:
        content, seen = bounded.read_with_status(path, BYTES_MAX, follow=True)
    except OSError as error:
        raise Refusal("settings-invalid", f"the profile {shown} cannot be read: {error.strerror}", fix=look) from error
    if seen.st_uid not in (0, os.geteuid()):
        message = f"the profile {shown} belongs to user {seen.st_uid}, not to you"
        raise Refusal("settings-invalid", message, fix=look)
    if seen.st_mode & 0o022:
        message = f"the profile {shown} is writable by other users, who could decide what a sandbox allows"
        raise Refusal("settings-invalid", message, fix=[f"chmod 600 {quoted(path)}"])
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refusal("settings-invalid", f"the profile {shown} is not UTF-8 text", fix=look) from None


class _ProfileReader(PlainData):
    """One file, as it is understood."""

    path: str
    text: str
    environment: Mapping[str, str]
    home: str

    def request(self) -> SandboxRequest:
        """Return what the profile asks for. Raises Refusal (settings-invalid)."""
        document = self._document()
        self._check_keys(document, KEYS, "")
        read = SandboxRequest()
        for key in PATHS:
            setattr(read, key, self._paths(key, document.get(key, []), read))
        read.deny_names = self._names(document.get("deny_names", []))
        read.allow_env_files = self._switch("allow_env_files", document.get("allow_env_files", False))
        read.env = self._env(document.get("env", []))
        read.backend = self._word("backend", document.get("backend", ""))
        read.network = self._word("network", document.get("network", ""))
        read.open_ports = self._ports(document.get("open_ports", []))
        for table, keys in TABLES.items():
            if not isinstance(document.setdefault(table, {}), dict):
                self._refuse(table, f"{table} is a table: [{table}]")
            self._check_keys(document[table], keys, f"{table}.")
        read.limits = self._limits(document["limits"])
        read.git_hooks = self._word("git.hooks", document["git"].get("hooks", ""))
        read.git_refs = self._word("git.refs", document["git"].get("refs", ""))
        read.redirect_xdg = self._switch("cache.redirect_xdg", document["cache"].get("redirect_xdg", False))
        return read

    def _document(self) -> dict[str, Any]:
        try:
            if self.path.endswith(".json"):
                document = json.loads(self.text, object_pairs_hook=_without_repetition)
            else:
                document = tomllib.loads(self.text)
        except RecursionError:
            self._refuse("", "it is nested too deep")
        except json.JSONDecodeError as error:
            self._refuse("", f"{error.msg}, in column {error.colno}", error.lineno)
        except ValueError as error:  # tomllib says the line itself
            self._refuse("", str(error)[:200])
        if not isinstance(document, dict):
            self._refuse("", "it is not a table of settings")
        return document

    def _check_keys(self, table: dict[str, Any], known: tuple[str, ...], prefix: str) -> None:
        for key in table:
            if key not in known:
                near = _near(key, known) or f"; known: {', '.join(known)}"
                self._refuse(key, f"unknown key {prefix}{_shown(key)}{near}")

    def _paths(self, key: str, value: object, request: SandboxRequest) -> list[str]:
        paths = []
        for text in self._texts(key, value):
            path = self._expanded(key, text)
            if path and (os.path.lexists(path) or key == "deny"):
                paths.append(os.path.abspath(path))
            else:
                request.warnings.append(
                    f"{_shown(self.path)}: {key} {_shown(text)} is ignored: no such file or directory"
                )
        return paths

    def _expanded(self, key: str, path: str) -> str:
        """An absolute path; empty where a variable has no value."""
        first, slash, rest = path.partition("/")
        if first == "~":
            return self.home + slash + rest
        if first.startswith("$"):
            name = first[1:].removeprefix("{").removesuffix("}")
            value = self.environment.get(name, "")
            if value and not value.startswith("/"):
                self._refuse(key, f"{key} {_shown(path)}: {name} is not an absolute path")
            return value + slash + rest if value else ""
        if first or not slash:
            self._refuse(key, f"{key} {_shown(path)}: write a path that begins with /, ~/ or $VARIABLE/")
        return path

    def _texts(self, key: str, value: object) -> list[str]:
        if not isinstance(value, list) or not all(_is_text(item) and item for item in value):
            self._refuse(key, f'{key} takes a list of texts: {key} = ["..."]')
        return value

    def _env(self, value: object) -> list[str]:
        if not isinstance(value, dict):
            return self._texts("env", value)
        for name, item in value.items():
            if not _is_text(item) and item is not True:
                self._refuse(name, f"env.{_shown(name)} takes a text, or true for the value it has outside")
        return [name if item is True else f"{name}={item}" for name, item in value.items()]

    def _names(self, value: object) -> list[str]:
        patterns = self._texts("deny_names", value)
        for pattern in patterns:
            try:
                check_pattern(pattern)
            except Refusal as refusal:
                self._refuse("deny_names", refusal.message.replace("--deny-name", "deny_names:"))
        return patterns

    def _switch(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            self._refuse(key.rpartition(".")[2], f"{key} takes true or false")
        return value

    def _word(self, key: str, value: object) -> str:
        if value != "" and value not in WORDS[key]:
            shown = _shown(value) if isinstance(value, str) else type(value).__name__
            self._refuse(key.rpartition(".")[2], f"{key} takes {' or '.join(WORDS[key])}, not {shown}")
        return str(value)

    def _ports(self, value: object) -> list[int | str]:
        ports: list[int | str] = []
        try:
            if not isinstance(value, list) or not all(type(port) in (int, str) for port in value):
                raise ValueError
            ports += [port_or_range(str(port)) for port in value]
        except ValueError:
            example = 'open_ports = [3000, "8000-8010"]'
            self._refuse("open_ports", f"open_ports takes a list of ports from 1 to {PORT_MAX} and ranges: {example}")
        return ports

    def _limits(self, table: dict[str, object]) -> dict[str, float]:
        amounts: dict[str, float] = {}
        for name, value in table.items():
            if type(value) not in (int, float, str) or (isinstance(value, str) and ("," in value or not value)):
                self._refuse(name, f"limits.{name} takes a number, or a text such as {limits.EXAMPLES[name]!r}")
            try:
                amounts |= limits.parse([f"{name}={value}"])
            except Refusal as refusal:
                self._refuse(name, refusal.message.replace("--limit", "limits"))
        return amounts

    def _refuse(self, key: str, message: str, line: int = 0) -> NoReturn:
        """Raise Refusal (settings-invalid) that names the line, where there is one to name."""
        if key and not line:
            words = (key, f'"{key}"')
            lines = (
                number for number, text in enumerate(self.text.splitlines(), 1) if text.lstrip(" {,[").startswith(words)
            )
            line = next(lines, 0)
        where = _shown(self.path) + (f":{line}" if line else "")
        raise Refusal("settings-invalid", f"{where}: {message}", fix=[f"${{EDITOR:-vi}} {quoted(self.path)}"])


def _is_text(value: object) -> bool:
    """Return whether a value is text that a path or a variable can have."""
    return isinstance(value, str) and not any(
        character == "\0" or "\ud800" <= character <= "\udfff" for character in value
    )


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is given twice")
    return members


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name[:40], list(known), 1, 0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _shown(text: str) -> str:
    """`text` with what a terminal cannot show escaped."""
    return printable(text[:200])
