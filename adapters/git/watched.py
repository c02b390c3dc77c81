"""Files of a tree that programs of the host obey as soon as they see them: tasks, settings of editors and of agents."""

from __future__ import annotations

# a file of this name, anywhere
FILES = frozenset(
    (
        ".envrc",
        ".env",
        ".env.local",
        ".mcp.json",
        "opencode.json",
        "opencode.jsonc",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        "lefthook.yaml",
        ".lefthook.yml",
        ".lefthook.yaml",
        ".lazy.lua",
        ".exrc",
        ".nvim.lua",
        ".vimrc",
    )
)
# every file below a folder of this name; or only those that begin so
FOLDERS: dict[str, tuple[str, ...]] = {
    ".vscode": ("tasks", "settings", "launch", "extensions", "mcp"),
    ".idea": ("",),
    ".claude": ("settings", "hooks"),
    ".codex": ("",),
    ".opencode": ("",),
    ".cursor": ("",),
    ".zed": ("",),
    ".devcontainer": ("",),
    ".husky": ("",),
    ".githooks": ("",),
}
