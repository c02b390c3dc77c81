"""The agent clients that are tested, each by its exact version, which no other file has."""

from typing import NamedTuple


class Client(NamedTuple):
    """A client: `name` is omac's word for it and its program's; `package` and `version` are npm's."""

    name: str
    package: str
    version: str

    @property
    def wanted(self) -> str:
        """Return the package with its version, as npm takes it."""
        return f"{self.package}@{self.version}"


OPENCODE = Client("opencode", "opencode-ai", "1.18.33")
CLAUDE = Client("claude", "@anthropic-ai/claude-code", "2.1.332")
CODEX = Client("codex", "@openai/codex", "0.171.0")
PI = Client("pi", "@earendil-works/pi-coding-agent", "0.74.2")
CLIENTS = (OPENCODE, CLAUDE, CODEX, PI)
