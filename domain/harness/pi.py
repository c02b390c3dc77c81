"""Pi."""

from __future__ import annotations

from omac.domain.harness.harness import Harness

HARNESS = Harness(
    "pi",
    base="pi",
    serve=("pi",),
    install="npm install -g @mariozechner/pi-coding-agent",
    folders=(".pi/agent/",),
    pinned=(
        ".pi/agent/AGENTS.md", ".pi/agent/APPEND_SYSTEM.md", ".pi/agent/SYSTEM.md", ".pi/agent/bin/",
        ".pi/agent/extensions/", ".pi/agent/git/", ".pi/agent/hooks/", ".pi/agent/models.json", ".pi/agent/npm/",
        ".pi/agent/prompts/", ".pi/agent/settings.json", ".pi/agent/skills/", ".pi/agent/tools/",
    ),
    settings=(".pi/agent/models.json", ".pi/agent/settings.json"),
    autorun_files=(".pi/", "AGENTS.md"),
    home_variable="PI_CODING_AGENT_DIR",
)  # fmt: skip
