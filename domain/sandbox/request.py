"""The request for one sandbox: the fields that a command line, a profile and the settings fill, all of them the same.

Loaded by programs whose whole start is a few milliseconds, so it imports nothing that costs one.
"""

from __future__ import annotations


class SandboxRequest:
    """A request for one sandbox. Empty fields leave the choice to what the request is put `over`.

    Paths are as they were typed, until the request is settled; `env` words are NAME or NAME=VALUE; `limits` are by
    name, as of LIMITS; `guard_scratch` is as in a PATH; `omac_files` are files of omac's own outside its state
    directory. `run`, the bridge's socket and token, `facade_socket`
    and `agent_settings` are of the omac run that the sandbox is part of.
    """

    def __init__(self) -> None:
        self.command: list[str] = []
        self.workdir = self.harness = self.profile = self.run = ""
        self.bridge_socket = self.bridge_token = self.facade_socket = self.agent_settings = ""
        self.backend = self.network = self.git_hooks = self.git_refs = self.guard_scratch = ""
        self.roots: list[str] = []
        self.allow: list[str] = []
        self.read: list[str] = []
        self.deny: list[str] = []
        self.deny_names: list[str] = []
        self.omac_files: list[str] = []
        self.env: list[str] = []
        self.open_ports: list[int | str] = []  # as of `listening`
        self.limits: dict[str, float] = {}
        self.weaker_git = self.allow_env_files = self.ephemeral_cache = self.ssh_agent = self.redirect_xdg = False
        self.explain = self.json = self.help = False
        self.warnings: list[str] = []

    def over(self, base: SandboxRequest) -> SandboxRequest:
        """Return this request with what `base` has where this one is empty; lists and limits hold those of both."""
        merged = SandboxRequest()
        for name, own in vars(self).items():
            beneath = getattr(base, name)
            if isinstance(own, list):
                value: object = [*beneath, *own]
            else:
                value = beneath | own if isinstance(own, dict) else own or beneath
            setattr(merged, name, value)
        return merged

    def fields(self) -> dict[str, object]:
        """Return the fields that are not empty, by name: data that JSON can hold."""
        return {name: value for name, value in vars(self).items() if value}


def request_of(fields: dict[str, object]) -> SandboxRequest:
    """Return the request with these `fields`. Raises AttributeError for a name that no field has."""
    request = SandboxRequest()
    for name, value in fields.items():
        getattr(request, name)  # of a field that there is
        setattr(request, name, value)
    return request


def defaults() -> SandboxRequest:
    """Return the request for what nobody asked otherwise."""
    return request_of({"backend": "auto", "network": "host", "git_hooks": "deny", "git_refs": "all"})
