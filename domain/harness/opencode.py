"""OpenCode."""

from __future__ import annotations

from omac.domain.harness.harness import Bridge, Harness, ServerPort, Sessions

HARNESS = Harness(
    "opencode",
    aliases=("oc",),
    base="opencode",
    serve=("opencode", "serve"),
    server_port=ServerPort("--port", "4096"),
    install="npm install -g opencode-ai",
    folders=(".local/share/opencode/", ".local/state/opencode/"),
    protected=(".config/opencode/",),
    pinned=(
        ".config/opencode/",
        ".config/opencode/.gitignore",  # it writes one on its way up, and fails where it cannot
        ".local/share/opencode/bin/", ".opencode/", ".opencode/.gitignore",
    ),
    apart=(".local/share/opencode/snapshot/",),  # repositories, whose settings the host's git would obey
    settings=(".config/opencode/config.json", ".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
    restored=tuple(
        f".config/opencode/{name}"  # for plugins, by npm or by bun
        for name in (".gitignore", "bun.lock", "node_modules", "package-lock.json", "package.json")
    ),
    autorun_files=(".opencode/", "AGENTS.md", "opencode.json", "opencode.jsonc", "tui.json", "tui.jsonc"),
    credentials=(
        "OPENCODE_API_KEY", "OPENCODE_AUTH_CONTENT", "OPENCODE_CONFIG_CONTENT",  # may hold keys of providers
        "OPENCODE_SERVER_PASSWORD",
    ),
    variables=(
        "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "OPENCODE_DISABLE_AUTOCOMPACT", "OPENCODE_DISABLE_AUTOUPDATE",
        "OPENCODE_DISABLE_CLAUDE_CODE", "OPENCODE_DISABLE_CLAUDE_CODE_PROMPT", "OPENCODE_DISABLE_CLAUDE_CODE_SKILLS",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS", "OPENCODE_DISABLE_EXTERNAL_SKILLS", "OPENCODE_DISABLE_LSP_DOWNLOAD",
        "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_MOUSE", "OPENCODE_DISABLE_PROJECT_CONFIG",
        "OPENCODE_DISABLE_PRUNE", "OPENCODE_DISABLE_SHARE", "OPENCODE_DISABLE_TERMINAL_TITLE", "OPENCODE_MODEL",
        "OPENCODE_PERMISSION", "OPENCODE_SERVER_USERNAME", "npm_config_offline",
    ),
    offline=(("npm_config_offline", "true"),),  # or the first session waits a minute for the registry
    sessions=Sessions(("--continue",), ("--session",), commands=("run",)),
    bridge=Bridge(
        plugin_variable="OPENCODE_CONFIG_CONTENT", plugin="opencode_bridge.ts",
        plugin_folder=".config/opencode/plugin/",
    ),
)  # fmt: skip
