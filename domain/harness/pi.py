"""Pi."""

from __future__ import annotations

from omac.domain.harness.harness import Bridge, Harness, Sessions

HARNESS = Harness(
    "pi",
    base="pi",
    serve=("pi",),
    install="npm install -g @earendil-works/pi-coding-agent",
    folders=(".pi/agent/",),
    pinned=(
        ".pi/agent/APPEND_SYSTEM.md", ".pi/agent/SYSTEM.md", ".pi/agent/bin/", ".pi/agent/extensions/",
        ".pi/agent/git/", ".pi/agent/mcp.json", ".pi/agent/models.json", ".pi/agent/npm/",
        ".pi/agent/prompts/", ".pi/agent/settings.json", ".pi/agent/skills/", ".pi/agent/tools/",
    ),
    alternatives=(
        ".pi/agent/AGENTS.MD", ".pi/agent/AGENTS.md", ".pi/agent/AGENTS.override.md", ".pi/agent/CLAUDE.MD",
        ".pi/agent/CLAUDE.md",
    ),
    apart=(".pi/agent/tmp/",),  # packages of one session
    settings=(".pi/agent/mcp.json", ".pi/agent/models.json", ".pi/agent/settings.json"),
    autorun_files=(".pi/", "AGENTS.MD", "AGENTS.md", "AGENTS.override.md", "CLAUDE.MD", "CLAUDE.md"),
    home_variable="PI_CODING_AGENT_DIR",
    credentials=(
        "ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "GEMINI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY",
        "OPENAI_API_KEY", "OPENROUTER_API_KEY", "XAI_API_KEY",
    ),
    variables=("PI_OFFLINE", "PI_SKIP_VERSION_CHECK", "PI_TELEMETRY"),
    offline=(("PI_OFFLINE", "1"),),
    sessions=Sessions(("--continue",), ("--session",), ("--resume",)),
    bridge=Bridge(plugin_option="-e", plugin="pi_bridge.ts", plugin_folder=".pi/agent/extensions/"),
)  # fmt: skip
