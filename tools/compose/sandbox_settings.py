"""The settings about sandboxes; loaded where any exist."""

from collections.abc import Mapping

from omac.adapters.settings.files import read_project, read_user
from omac.domain.sandbox.request import SandboxRequest
from omac.domain.settings.settings import Resolved, SettingsFile, resolve


def request_of_settings(host: Mapping[str, str], workdir: str) -> SandboxRequest:
    """Return what the settings ask for in this working directory. Raises Refusal (misuse, settings-invalid)."""
    project = read_project(workdir)
    resolved = resolve({}, host, project, read_user(host))
    request = SandboxRequest()
    request.git_hooks = resolved["git.hooks"].value
    request.git_refs = resolved["git.refs"].value
    request.redirect_xdg = resolved["cache.redirect_xdg"].value == "true"
    request.guard_scratch = resolved["guard.scratch"].value
    witness = (resolved[name].value for name in ("journal.witness", "journal.witness_token"))
    request.omac_files = [path for value in witness for path in value.split(":") if path.startswith("/")]
    request.warnings += project_warnings(project, resolved)
    return request


def project_warnings(project: SettingsFile, resolved: Mapping[str, Resolved]) -> list[str]:
    """Return what a sandbox reports of a project's file: what is wrong with it, and what it may not choose."""
    return [*settings_without_effect({name: resolved[name] for name in ("git.hooks", "git.refs")}), *project.warnings]


def settings_without_effect(resolved: Mapping[str, Resolved]) -> list[str]:
    """Return which of these settings a project's file sets without effect, and why."""
    return [
        f"{name}: {text}"
        for name, setting in resolved.items()
        for text in setting.ignored
        if text.startswith("project")
    ]
