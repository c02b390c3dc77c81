"""Sandbox profiles of the omac that was written in Go: each key becomes one of this omac's, or the reason is given.

Rules

1. Nothing is granted that the old profile did not grant. Where this omac has only something wider, the key is skipped,
   and the text says by what a person can state it.
2. Every key of the old profile that has a value is in the plan, also one that is not known.
3. What this omac does anyway is neither taken over nor lost: it is there already.
"""

import json
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.environment import ORDINARY, filtered
from omac.domain.sandbox.hidden_names import check_pattern
from omac.domain.sandbox.listening import PORT_MAX
from omac.domain.skills.values import shown

SECTIONS = ("meta", "workdir", "filesystem", "network", "environment", "denial")
ENV_FILES = (".env", ".envrc")
NO_FILTER = 'omac filters no hosts: the network is the host\'s, or, with network = "none", there is none'
ADVICE = {  # of keys that have no counterpart
    "filesystem.write": "omac knows no place that can be written and not read; to grant both, add it to allow",
    "filesystem.allow_unix_dir": "omac hands its own sockets in, and with --ssh-agent the agent's; others it keeps out",
    "network.allow_domain": NO_FILTER,
    "network.deny_domain": NO_FILTER,
    "network.network_prompt": NO_FILTER,
    "network.allow_tcp_connect": "with the host's network, programs may connect to every port",
    "network.enforcement": "omac refuses a launch whose policy cannot be enforced",
    "network.upstream_proxy": "set HTTPS_PROXY and the like: proxy variables pass with the host's network",
    "network.no_proxy": "set NO_PROXY: proxy variables pass with the host's network",
    "network.proxy_injection": 'name the variable with its value: env = ["JAVA_TOOL_OPTIONS=..."]',
    "environment.deny_vars": "only variables that omac lists, or that env names, pass at all",
    "denial.marker_file": "hidden files leave no marker; the briefing says that they exist",
    "denial.marker_dir_name": "hidden folders leave no marker; the briefing says that they exist",
    "denial.facade_note": "the facade answers no questions about files",
}

Value = str | bool | list[str] | list[int]


class ProfileKey(msgspec.Struct, frozen=True):
    """The verdict on one value of an old profile: `take` it as `value`, it is `there` already, or `skip` it."""

    key: str
    verdict: Literal["take", "there", "skip"]
    value: str = ""
    why: str = ""


class ProfilePlan(msgspec.Struct, frozen=True):
    """An old profile, what becomes of its keys, and the new one's text. `present` is the file that is there already."""

    name: str
    source: str
    keys: tuple[ProfileKey, ...]
    text: str
    present: str = ""

    @property
    def takes(self) -> bool:
        """Return whether the new profile is to be written."""
        return not self.present


def is_go_profile(document: object) -> bool:
    """Return whether a document has the form of the old omac, and not this one's own JSON."""
    if not isinstance(document, dict) or not document.keys() & set(SECTIONS):
        return False
    return all(isinstance(document[section], dict) for section in SECTIONS if section in document)


def plan_of(name: str, source: str, document: Mapping[str, object], present: str) -> ProfilePlan:
    """Return what becomes of an old profile; `present` is the new one's file if there is one, else ""."""
    translation = _Translation()
    for section, values in document.items():
        members = values if isinstance(values, dict) and section in SECTIONS else {"": values}
        for member, value in members.items():
            key = f"{section}.{member}" if member else section
            if value not in (None, "", [], {}):
                translation.add(key, value)
    translation.settle()
    return ProfilePlan(name, source, tuple(translation.keys), translation.text(source), present)


class _Translation:
    def __init__(self) -> None:
        self.keys: list[ProfileKey] = []
        self.fields: dict[str, Value] = {}

    def add(self, key: str, value: object) -> None:
        """Decide about one key of the old profile."""
        each: dict[str, Callable[[str], None]] = {
            "filesystem.allow": lambda path: self._path(key, "allow", path),
            "filesystem.read": lambda path: self._path(key, "read", path),
            "filesystem.deny": lambda path: self._deny(key, path),
            "filesystem.override_deny": lambda path: self._override(key, path),
            "environment.allow_vars": lambda name: self._variable(key, name),
        }
        whole: dict[str, Callable[[object], None]] = {
            "meta.name": lambda _: self._there(key, value, "a profile's name is that of its file"),
            "workdir.access": self._access,
            "network.mode": self._mode,
            "network.listen_port": self._ports,
            "network.open_port": lambda _: self._there(key, value, "with the host's network, loopback is open"),
        }
        if key in each:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, str) and item and item.isprintable():
                    each[key](item)
                else:
                    self._skip(key, item, "is not a text")
        elif key in whole:
            whole[key](value)
        else:
            self._skip(key, value, ADVICE.get(key, "this key is not known, neither here nor to the Go omac's contract"))

    def settle(self) -> None:
        """Leave out what has no effect beside another key."""
        if self.fields.get("network") == "none" and "open_ports" in self.fields:
            del self.fields["open_ports"]
            kept = [entry for entry in self.keys if entry.key != "network.listen_port"]
            self.keys = [*kept, ProfileKey("network.listen_port", "skip", "", "without a network there are no ports")]

    def text(self, source: str) -> str:
        """Return the new profile, in TOML: strings of JSON that hold printable characters are also TOML's."""
        lines = [f"# imported from {source}"]
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in self.fields.items()]
        return "\n".join(lines) + "\n"

    def _take(self, key: str, field: str, item: str | int) -> None:
        values = self.fields.setdefault(field, [])
        assert isinstance(values, list)
        if item not in values:
            values.append(item)  # type: ignore[arg-type]  # each field has values of one type
        self.keys.append(ProfileKey(key, "take", f"{field} {shown(item) if isinstance(item, str) else item}"))

    def _set(self, key: str, field: str, value: str | bool) -> None:
        self.fields[field] = value
        self.keys.append(ProfileKey(key, "take", f"{field} = {json.dumps(value)}"))

    def _there(self, key: str, value: object, why: str) -> None:
        self.keys.append(ProfileKey(key, "there", _brief(value), why))

    def _skip(self, key: str, value: object, why: str) -> None:
        self.keys.append(ProfileKey(key, "skip", _brief(value), why))

    def _path(self, key: str, field: str, path: str) -> None:
        if not path.startswith(("/", "~/", "$")) and path != "~":
            self._skip(key, path, "write a path that begins with /, ~/ or $VARIABLE/")
        elif any(character in path for character in "*?["):
            self._skip(key, path, f"{field} takes paths and no patterns: name each folder")
        else:
            self._take(key, field, path)

    def _deny(self, key: str, pattern: str) -> None:
        if "/" in pattern or pattern == "~":
            self._path(key, "deny", pattern)
            return
        try:
            check_pattern(pattern)
        except Refusal:
            self._skip(key, pattern, "deny_names takes no pattern that is every name")
        else:
            self._take(key, "deny_names", pattern)

    def _override(self, key: str, name: str) -> None:
        if name in ENV_FILES:
            self._set(key, "allow_env_files", True)
        else:
            self._skip(key, name, "omac shows no credentials; give the program a copy that is made for it")

    def _variable(self, key: str, name: str) -> None:
        if name.endswith("*"):
            always = name in ("LC_*", "OMAC_*")
            why = "they pass anyway" if always else "name each variable: env takes no patterns"
            (self._there if always else self._skip)(key, name, why)
        elif name in ORDINARY or name.startswith("LC_"):
            self._there(key, name, "it passes anyway")
        else:
            try:
                filtered({}, given=[name])
            except Refusal as refusal:
                self._skip(key, name, refusal.message)
            else:
                self._take(key, "env", name)

    def _access(self, value: object) -> None:
        if value == "readwrite":
            self._there("workdir.access", value, "the working directory can be read and changed")
        else:
            why = "the working directory can always be changed; start in another one, and name this one in read"
            self._skip("workdir.access", value, why)

    def _mode(self, value: object) -> None:
        if value == "blocked":
            self._set("network.mode", "network", "none")
        elif value == "open":
            self._set("network.mode", "network", "host")
        else:
            self._skip("network.mode", value, NO_FILTER)

    def _ports(self, value: object) -> None:
        for port in value if isinstance(value, list) else [value]:
            if type(port) is int and 1 <= port <= PORT_MAX:
                self._take("network.listen_port", "open_ports", port)
            else:
                self._skip("network.listen_port", port, f"open_ports takes ports from 1 to {PORT_MAX}")


def _brief(value: object) -> str:
    return shown(value if isinstance(value, str) else json.dumps(value, ensure_ascii=True))
