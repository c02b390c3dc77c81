"""GitHub Copilot CLI."""

from __future__ import annotations

from omac.domain.harness.harness import Harness

HARNESS = Harness(
    "copilot",
    aliases=("co",),
    base="copilot",
    serve=("copilot",),
    install="npm install -g @github/copilot",
    folders=(".copilot/",),
    pinned=(
        ".copilot/agents/", ".copilot/copilot-instructions.md", ".copilot/extensions/", ".copilot/hooks/",
        ".copilot/installed-plugins/", ".copilot/instructions/", ".copilot/lsp-config.json", ".copilot/mcp-config.json",
        ".copilot/pkg/", ".copilot/settings.json", ".copilot/skills/",
    ),
    settings=(".copilot/config.json", ".copilot/lsp-config.json", ".copilot/mcp-config.json", ".copilot/settings.json"),
    autorun_files=(
        ".copilot/", ".github/agents/", ".github/chatmodes/", ".github/copilot-instructions.md", ".github/copilot/",
        ".github/extensions/", ".github/hooks/", ".github/instructions/", ".github/lsp.json", ".github/prompts/",
        ".github/skills/", "AGENTS.md",
    ),
    home_variable="COPILOT_HOME",
    credentials=(
        "COPILOT_GITHUB_TOKEN", "COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN", "GH_TOKEN", "GITHUB_TOKEN",
    ),
    variables=(
        "COPILOT_AUTO_UPDATE", "COPILOT_CUSTOM_INSTRUCTIONS_DIRS", "COPILOT_GH_HOST", "COPILOT_MODEL",
        "COPILOT_OFFLINE", "COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_MODEL_ID", "COPILOT_PROVIDER_TRANSPORT",
        "COPILOT_PROVIDER_TYPE", "COPILOT_PROVIDER_WIRE_API", "COPILOT_PROVIDER_WIRE_MODEL", "GH_HOST",
    ),
)  # fmt: skip
