"""domain/harness/harness.py: the definitions of the harnesses are consistent."""

import posixpath

import pytest

from omac.domain.harness.harness import Harness
from omac.domain.harness.table import HARNESSES, harness_named

each = pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)


@each
def test_its_own_skills_come_before_the_shared_ones(harness: Harness) -> None:
    """A skill in the agent's own folder hides one of that name in .agents."""
    assert harness.bases == (harness.base, "agents")
    assert harness.serve


@each
def test_a_missing_program_can_be_installed(harness: Harness) -> None:
    """The hint for a missing program is a command to paste; the program is the one that is launched."""
    assert harness.install.isprintable()
    assert len(harness.install.split()) > 1
    assert harness.program == harness.serve[0]


@each
def test_what_is_pinned_cannot_also_be_its_own(harness: Harness) -> None:
    """A path in the home is kept or pinned, not both; each is listed once and leads nowhere else."""
    paths = (*harness.folders, *harness.pinned, *harness.added_to, *harness.apart)
    assert len({path.rstrip("/") for path in paths}) == len(paths)
    assert harness.folders
    for path in (*paths, *harness.protected, *harness.settings):
        assert path == posixpath.normpath(path) + "/" * path.endswith("/")
        assert not path.startswith(("/", "..", "~"))
    assert all(path.endswith("/") for path in (*harness.added_to, *harness.apart))


@each
def test_a_variable_is_a_credential_or_not(harness: Harness) -> None:
    """A variable is in one of the two lists, and once; a sandbox passes all of them."""
    plain = harness.auth_variables({})
    assert len(set(plain)) == len(harness.credentials) + len(harness.variables)
    assert all(name.isidentifier() for name in plain)
    assert all(name == name.upper() or name.startswith("npm_config_") for name in plain)
    secret = ("_KEY", "_TOKEN", "_PASSWORD")
    assert not [name for name in harness.variables if name.endswith(secret)]


@each
def test_what_a_cloud_needs_is_passed_to_who_chose_it(harness: Harness) -> None:
    """Variables of another provider, credentials among them, pass only with the one that chooses it."""
    for cloud in harness.clouds:
        names = {cloud.chosen_by, *cloud.credentials, *cloud.variables}
        assert names <= set(harness.auth_variables({cloud.chosen_by: "1"}))
        assert not names & set(harness.auth_variables({cloud.chosen_by: ""}))


@each
def test_a_hook_is_called_for_the_tools_that_the_guard_reads(harness: Harness) -> None:
    """The guard knows a tool by its name in lower case. The hook's file is in the harness's folder, and is pinned."""
    if harness.hook is None:
        return
    tools = harness.hook.tools
    tool_names = (*tools.files, *tools.patches, *tools.shells)
    assert len(set(tool_names)) == len(tool_names)
    assert all(name == name.lower() for name in tool_names)
    assert {name.lower() for name in harness.hook.matcher.split("|")} & set(tool_names)
    assert harness.hook.file in harness.pinned
    assert posixpath.dirname(harness.hook.file) + "/" == harness.folders[0]
    assert harness.hook.project_variable or harness.hook.begins_in_project


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("claude", "DISABLE_UPDATES"),
        ("claude", "CLAUDE_CODE_DISABLE_CRON"),
        ("codex", "CODEX_ACCESS_TOKEN"),
        ("copilot", "COPILOT_OFFLINE"),
        ("opencode", "OPENCODE_DISABLE_PROJECT_CONFIG"),
        ("opencode", "OPENCODE_PERMISSION"),
    ],
)
def test_what_a_person_turned_off_stays_off(name: str, variable: str) -> None:
    """Variables by which a person narrows what an agent does, or logs it in, pass."""
    assert variable in harness_named(name).auth_variables({})


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("claude", ".claude/settings.json"),
        ("claude", ".claude/plugins/"),
        ("claude", ".claude/workflows/"),
        ("claude", ".claude/chrome/"),
        ("claude", ".claude/remote-settings.json"),
        ("claude", ".claude/loop.md"),
        ("claude", ".claude/daemon.json"),
        ("codex", ".codex/config.toml"),
        ("codex", ".codex/hooks.json"),
        ("codex", ".codex/.env"),
        ("codex", ".codex/environments.toml"),
        ("codex", ".codex/.tmp/marketplaces/"),
        ("opencode", ".config/opencode/"),
        ("copilot", ".copilot/mcp-config.json"),
        ("copilot", ".copilot/extensions/"),
        ("copilot", ".copilot/installed-plugins/"),
        ("copilot", ".copilot/settings.json"),
        ("pi", ".pi/agent/extensions/"),
        ("pi", ".pi/agent/mcp.json"),
    ],
)
def test_what_runs_code_at_the_next_start_is_pinned(name: str, path: str) -> None:
    """A session cannot plant hooks, plugins and tool servers, which would run in the next session, sandbox or not."""
    assert path in harness_named(name).pinned
    assert not any(path == folder for folder in harness_named(name).folders)
