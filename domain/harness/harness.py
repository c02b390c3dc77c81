"""The harness table: the coding agents omac knows, where each keeps its skills, and what it needs of a home.

Loaded by programs whose whole start is a few milliseconds, so it imports nothing that costs one.
"""

from __future__ import annotations

from omac.domain.kernel.refusal import Refusal, quoted

SHARED_BASE = "agents"  # .agents/skills is read by every harness


class Harness:
    """A coding agent: `base` is its dot folder's name without the dot, `serve` the argv of its long-lived form.

    Paths are relative to the home directory; those of folders end in "/". `folders` is what it keeps there: logins,
    settings, sessions. `pinned` is the part of it that runs code, or tells later sessions what to do: a session may
    read it and not change it. `added_to` are such folders to which it adds something at every start: what is there is
    pinned, what is added is gone with the session. `apart` are folders whose content the agent runs again itself,
    scripts and repositories: each session has its own, which begins empty and is gone with it. `settings` are files
    with commands that it runs: what they name in its own folders is pinned, too. `home_variable` names another place
    for the first of `folders`; `auth_variables` say who it is to its model's server, and which server that is.
    """

    __slots__ = (
        "added_to",
        "aliases",
        "apart",
        "auth_variables",
        "base",
        "folders",
        "home_variable",
        "name",
        "pinned",
        "serve",
        "settings",
    )

    def __init__(
        self,
        name: str,
        aliases: tuple[str, ...],
        base: str,
        serve: tuple[str, ...],
        *,
        folders: tuple[str, ...] = (),
        pinned: tuple[str, ...] = (),
        added_to: tuple[str, ...] = (),
        apart: tuple[str, ...] = (),
        settings: tuple[str, ...] = (),
        home_variable: str = "",
        auth_variables: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.aliases = aliases
        self.base = base
        self.serve = serve
        self.folders = folders
        self.pinned = pinned
        self.added_to = added_to
        self.apart = apart
        self.settings = settings
        self.home_variable = home_variable
        self.auth_variables = auth_variables

    def __repr__(self) -> str:
        return f"Harness({self.name!r})"

    @property
    def bases(self) -> tuple[str, ...]:
        """Base folders whose `skills` this harness sees, in order of precedence: its own, then the shared one."""
        return (self.base, SHARED_BASE)


HARNESSES = (
    Harness(
        "opencode",
        ("oc",),
        "opencode",
        ("opencode", "serve"),
        folders=(".local/share/opencode/", ".local/state/opencode/"),
        pinned=(
            ".config/opencode/",
            ".config/opencode/.gitignore",  # it writes one on its way up, and fails where it cannot
            ".local/share/opencode/bin/",
            ".opencode/",
            ".opencode/.gitignore",
        ),
        apart=(".local/share/opencode/snapshot/",),  # repositories, whose settings the host's git would obey
        settings=(
            ".config/opencode/config.json",
            ".config/opencode/opencode.json",
            ".config/opencode/opencode.jsonc",
        ),
        auth_variables=("OPENCODE_CONFIG_CONTENT", "OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME"),
    ),
    Harness(
        "claude",
        ("claude-code", "cc"),
        "claude",
        ("claude",),
        folders=(".claude/", ".claude.json"),
        pinned=(
            ".claude/CLAUDE.md",
            ".claude/agents/",
            ".claude/commands/",
            ".claude/hooks/",
            ".claude/ide/",
            ".claude/local/",
            ".claude/output-styles/",
            ".claude/plugins/",
            ".claude/rules/",
            ".claude/settings.json",
            ".claude/settings.local.json",
            ".claude/skills/",
            ".local/share/claude/",
        ),
        apart=(".claude/session-env/", ".claude/shell-snapshots/"),  # read by the shell before each command
        settings=(".claude/settings.json", ".claude/settings.local.json", ".claude.json"),
        home_variable="CLAUDE_CONFIG_DIR",
        auth_variables=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_MODEL",
            "CLAUDE_CODE_OAUTH_TOKEN",
        ),
    ),
    Harness(
        "codex",
        ("cx",),
        "codex",
        ("codex",),
        folders=(".codex/",),
        pinned=(
            ".codex/.env",
            ".codex/AGENTS.md",
            ".codex/AGENTS.override.md",
            ".codex/agents/",
            ".codex/config.toml",
            ".codex/hooks.json",
            ".codex/hooks/",
            ".codex/packages/",
            ".codex/plugins/",
            ".codex/prompts/",
            ".codex/rules/",
        ),
        added_to=(".codex/skills/",),
        apart=(".codex/shell_snapshots/", ".codex/tmp/"),  # the latter is in the PATH of what it runs
        settings=(".codex/config.toml", ".codex/hooks.json"),
        home_variable="CODEX_HOME",
        auth_variables=("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ),
    Harness(
        "copilot",
        ("co",),
        "copilot",
        ("copilot",),
        folders=(".copilot/",),
        pinned=(
            ".copilot/agents/",
            ".copilot/copilot-instructions.md",
            ".copilot/hooks/",
            ".copilot/lsp-config.json",
            ".copilot/mcp-config.json",
            ".copilot/pkg/",
            ".copilot/skills/",
        ),
        settings=(
            ".copilot/config.json",
            ".copilot/lsp-config.json",
            ".copilot/mcp-config.json",
            ".copilot/settings.json",
        ),
        home_variable="COPILOT_HOME",
        auth_variables=(
            "COPILOT_CUSTOM_INSTRUCTIONS_DIRS",
            "COPILOT_GITHUB_TOKEN",
            "COPILOT_MODEL",
            "COPILOT_PROVIDER_API_KEY",
            "COPILOT_PROVIDER_BASE_URL",
            "COPILOT_PROVIDER_TYPE",
            "COPILOT_PROVIDER_WIRE_API",
            "GH_TOKEN",
            "GITHUB_TOKEN",
        ),
    ),
    Harness(
        "pi",
        (),
        "pi",
        ("pi",),
        folders=(".pi/agent/",),
        pinned=(
            ".pi/agent/AGENTS.md",
            ".pi/agent/APPEND_SYSTEM.md",
            ".pi/agent/SYSTEM.md",
            ".pi/agent/bin/",
            ".pi/agent/extensions/",
            ".pi/agent/git/",
            ".pi/agent/hooks/",
            ".pi/agent/models.json",
            ".pi/agent/npm/",
            ".pi/agent/prompts/",
            ".pi/agent/settings.json",
            ".pi/agent/skills/",
            ".pi/agent/tools/",
        ),
        settings=(".pi/agent/models.json", ".pi/agent/settings.json"),
        home_variable="PI_CODING_AGENT_DIR",
    ),
)
DEFAULT_HARNESS = HARNESSES[0]


def harness_named(name: str) -> Harness:
    """The harness of that name or alias. Raises Refusal (misuse) that lists them all."""
    for harness in HARNESSES:
        if name == harness.name or name in harness.aliases:
            return harness
    known = ", ".join(" or ".join((h.name, *h.aliases)) for h in HARNESSES)
    fix = ["omac start claude", f"omac start -- {quoted(name)}  # to run a command of that name"]
    raise Refusal("misuse", f"unknown harness {name!r}; known are: {known}", fix=fix)
