"""What the settings say about sandboxes; loaded where there are any."""

from collections.abc import Mapping

from omac.adapters.settings.files import read_project, read_user
from omac.domain.settings.settings import resolve
from omac.tools.compose.sandbox_choices import Choices


def apply(choices: Choices, host: Mapping[str, str], workdir: str) -> None:
    """Have `choices` be as the settings are, in this working directory. Raises Refusal (misuse, settings-invalid)."""
    project = read_project(workdir)
    resolved = resolve({}, host, project, read_user(host))
    choices.git_hooks = resolved["git.hooks"].value
    choices.git_refs = resolved["git.refs"].value
    choices.redirect_xdg = resolved["cache.redirect_xdg"].value == "true"
    choices.guard_scratch = resolved["guard.scratch"].value
    for name in ("git.hooks", "git.refs"):
        choices.warnings += tuple(text for text in resolved[name].ignored if text.startswith("project"))
    choices.warnings += project.warnings
