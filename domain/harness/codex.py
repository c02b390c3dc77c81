"""Codex."""

from __future__ import annotations

from omac.domain.harness.harness import Bridge, GuardTools, Harness, Hook, Sessions

HARNESS = Harness(
    "codex",
    aliases=("cx",),
    base="codex",
    serve=("codex",),
    install="npm install -g @openai/codex",
    folders=(".codex/",),
    pinned=(
        ".codex/*.config.toml", ".codex/.env", ".codex/.tmp/bundled-marketplaces/", ".codex/.tmp/marketplaces/",
        ".codex/.tmp/plugins/", ".codex/AGENTS.md", ".codex/AGENTS.override.md", ".codex/agents/", ".codex/config.toml",
        ".codex/environments.toml", ".codex/hooks.json", ".codex/hooks/", ".codex/packages/", ".codex/plugins/",
        ".codex/prompts/", ".codex/rules/",
    ),
    added_to=(".codex/skills/",),
    apart=(".codex/shell_snapshots/", ".codex/tmp/"),  # the latter is in the PATH of what it runs
    settings=(".codex/*.config.toml", ".codex/config.toml", ".codex/environments.toml", ".codex/hooks.json"),
    autorun_files=(".codex-plugin/", ".codex/", "AGENTS.md", "AGENTS.override.md"),
    home_variable="CODEX_HOME",
    credentials=("CODEX_ACCESS_TOKEN", "CODEX_API_KEY", "OPENAI_API_KEY"),
    variables=("OPENAI_BASE_URL",),
    hook=Hook(
        ".codex/hooks.json",
        "apply_patch|Edit|Write|Bash",  # it takes the names that Claude Code has for its tools, too
        GuardTools(
            patches=("apply_patch", "applypatch"),
            shells=("bash", "shell", "local_shell", "shell_command", "exec_command", "unified_exec", "container.exec"),
            paths=("file_path", "notebook_path"),
            folders=("workdir", "cwd", "working_directory"),
        ),
        on_switch="features.hooks",
        notice="codex runs a hook only after you trust it: start codex, and open /hooks",
        begins_in_project=True,
    ),
    sessions=Sessions(("resume", "--last"), ("resume",), ("resume",), commands=("exec", "e")),
    bridge=Bridge(override_option="-c", folders_file=".codex/config.toml"),
    confined=("-c", 'sandbox_mode="danger-full-access"', "-c", 'approval_policy="never"'),
)  # fmt: skip
