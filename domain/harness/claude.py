"""Claude Code."""

from __future__ import annotations

from omac.domain.harness.harness import AWS, AWS_SETTINGS, Bridge, Cloud, GuardTools, Harness, Hook, Sessions

HARNESS = Harness(
    "claude",
    aliases=("claude-code", "cc"),
    base="claude",
    serve=("claude",),
    install="npm install -g @anthropic-ai/claude-code",
    folders=(".claude/", ".claude.json"),
    pinned=(
        ".claude/AGENTS.md", ".claude/CLAUDE.md", ".claude/agents/",
        ".claude/chrome/",  # a script that the browser runs
        ".claude/commands/", ".claude/cowork_plugins/", ".claude/daemon.json", ".claude/hooks/", ".claude/ide/",
        ".claude/local/", ".claude/loop.md", ".claude/output-styles/", ".claude/plugins/",
        ".claude/remote/",  # programs that the desktop application runs here
        ".claude/remote-settings.json", ".claude/routines/", ".claude/rules/", ".claude/settings.json",
        ".claude/settings.local.json", ".claude/skills/", ".claude/workflows/", ".local/share/claude/",
    ),
    apart=(
        ".claude/daemon/", ".claude/dev-mods/", ".claude/jobs/",  # sessions that are started again in the background
        ".claude/session-env/", ".claude/shell-snapshots/",  # read by the shell before each command
    ),
    settings=(".claude/settings.json", ".claude/settings.local.json", ".claude.json"),
    restored=(".config/mimeapps.list", ".local/share/applications/claude-code-url-handler.desktop"),
    autorun_files=(
        ".claude-plugin/", ".claude/CLAUDE.md", ".claude/agent-memory-local/", ".claude/agent-memory/",
        ".claude/agents/", ".claude/commands/", ".claude/hooks/", ".claude/launch.json", ".claude/loop.md",
        ".claude/output-styles/", ".claude/plugins/", ".claude/routines/", ".claude/rules/",
        ".claude/scheduled_tasks.json", ".claude/scripts/", ".claude/settings*", ".claude/skills/",
        ".claude/statusline*", ".claude/workflows/", ".lsp.json", ".mcp.json", "CLAUDE.local.md", "CLAUDE.md",
    ),
    home_variable="CLAUDE_CONFIG_DIR",
    credentials=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    variables=(
        "ANTHROPIC_BASE_URL", "ANTHROPIC_DEFAULT_FABLE_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_DEFAULT_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "CLAUDE_CODE_DISABLE_CRON",
        "CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "CLAUDE_CODE_SUBAGENT_MODEL", "DISABLE_AUTOUPDATER", "DISABLE_BUG_COMMAND", "DISABLE_COST_WARNINGS",
        "DISABLE_ERROR_REPORTING", "DISABLE_FEEDBACK_COMMAND", "DISABLE_TELEMETRY", "DISABLE_UPDATES", "DO_NOT_TRACK",
        "IS_SANDBOX", "MAX_MCP_OUTPUT_TOKENS", "MAX_THINKING_TOKENS", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT",
    ),
    clouds=(
        Cloud("CLAUDE_CODE_USE_BEDROCK", AWS, (*AWS_SETTINGS, "ANTHROPIC_BEDROCK_BASE_URL")),
        Cloud(
            "CLAUDE_CODE_USE_VERTEX", ("GOOGLE_APPLICATION_CREDENTIALS",),
            ("ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION"),
        ),
        Cloud(
            "CLAUDE_CODE_USE_FOUNDRY", ("ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_AUTH_TOKEN"),
            ("ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE"),
        ),
    ),
    hook=Hook(
        ".claude/settings.json",
        "Write|Edit|MultiEdit|NotebookEdit",
        GuardTools(files=("write", "edit", "multiedit", "notebookedit"), paths=("file_path", "notebook_path")),
        off_switch="disableAllHooks",
        project_variable="CLAUDE_PROJECT_DIR",
        ends_sessions=True,
        reads_mark=True,
    ),
    sessions=Sessions(("--continue",), ("--resume",), ("--resume",)),
    bridge=Bridge(settings_option="--settings", environment_file="CLAUDE_ENV_FILE"),
)  # fmt: skip
