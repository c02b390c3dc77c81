"""Claude Code."""

from __future__ import annotations

from omac.domain.harness.harness import GuardTools, Harness, Hook

HARNESS = Harness(
    "claude",
    aliases=("claude-code", "cc"),
    base="claude",
    serve=("claude",),
    install="npm install -g @anthropic-ai/claude-code",
    folders=(".claude/", ".claude.json"),
    pinned=(
        ".claude/CLAUDE.md", ".claude/agents/", ".claude/commands/", ".claude/hooks/", ".claude/ide/", ".claude/local/",
        ".claude/output-styles/", ".claude/plugins/", ".claude/rules/", ".claude/settings.json",
        ".claude/settings.local.json", ".claude/skills/", ".local/share/claude/",
    ),
    apart=(".claude/session-env/", ".claude/shell-snapshots/"),  # read by the shell before each command
    settings=(".claude/settings.json", ".claude/settings.local.json", ".claude.json"),
    autorun_files=(
        ".claude/CLAUDE.md", ".claude/agents/", ".claude/commands/", ".claude/hooks/", ".claude/output-styles/",
        ".claude/plugins/", ".claude/rules/", ".claude/settings*", ".claude/skills/", ".mcp.json", "CLAUDE.local.md",
        "CLAUDE.md",
    ),
    home_variable="CLAUDE_CONFIG_DIR",
    credentials=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    variables=("ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
    hook=Hook(
        ".claude/settings.json",
        "Write|Edit|MultiEdit|NotebookEdit",
        GuardTools(files=("write", "edit", "multiedit", "notebookedit"), paths=("file_path", "notebook_path")),
        off_switch="disableAllHooks",
        project_variable="CLAUDE_PROJECT_DIR",
    ),
)  # fmt: skip
