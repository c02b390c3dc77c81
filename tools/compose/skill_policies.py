"""The policies by which a server treats skills and calls of them: its flags and the user's settings, and, for skills,
narrowed by each project's own settings."""

import logging
from collections.abc import Mapping
from contextlib import ExitStack, closing

import msgspec

from omac.adapters.settings.files import read_project, read_user
from omac.domain.directories.skill_plan import Drift, SkillPolicy, Unapproved
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.numbers import NONE
from omac.domain.settings.owner_limits import PREFIX, owner_limits
from omac.domain.settings.settings import Resolved, SettingsFile, resolve
from omac.services.access.buffered import BufferedAccessRecorder
from omac.services.access.port import AccessRecorder
from omac.services.access.recorder import JournalAccessRecorder
from omac.services.kernel.threads import run_in_thread
from omac.services.ports import Policies
from omac.tools.compose.sandbox_settings import project_warnings, settings_without_effect

_log = logging.getLogger("omac.settings")


class ServePolicies(Policies):
    """`flags` are by a setting's name. The user's file and the environment count as they were at the start. The sandbox
    that is launched in the directory `launched` reports what is wrong with that project's file."""

    def __init__(self, flags: Mapping[str, str | None], environment: Mapping[str, str], launched: str = "") -> None:
        """Read the settings. Raises Refusal: misuse, settings-invalid, sandbox-unavailable."""
        self._flags = dict(flags)
        self._environment = dict(environment)
        self._user = read_user(environment)
        self._launched = launched
        self._warned: set[str] = set()
        self.resolved = self._resolve(None)
        self.asked = _policy(self.resolved)
        words = {name: setting.value for name, setting in self.resolved.items() if name.startswith(PREFIX)}
        self.owner = owner_limits(words)
        self._is_buffered = self.resolved["serve.audit"].value == "buffered"
        self.recorded: dict[str, str | bool] = {  # when the server starts
            **msgspec.to_builtins(self.asked),
            **{name: word for name, word in words.items() if word != NONE},
            **({"audit": "buffered"} if self._is_buffered else {}),
        }

    def recorder(self, strict: JournalAccessRecorder, resources: ExitStack) -> AccessRecorder:
        """Return the recorder that calls wait for: buffered where the settings say so, else `strict`. `resources` are
        closed when the journal takes nothing more."""
        return resources.enter_context(closing(BufferedAccessRecorder(strict))) if self._is_buffered else strict

    async def policy(self, workdir: str) -> SkillPolicy:
        if not workdir:
            return self.asked
        project = await run_in_thread(read_project, workdir, abandon_on_cancel=True)
        resolved = self._resolve(project)
        if workdir == self._launched:
            self._launched = ""  # what is wrong later is reported here
            self._warned.update(project_warnings(project, resolved))
        for warning in (*project.warnings, *settings_without_effect(resolved)):
            if warning not in self._warned:
                self._warned.add(warning)
                _log.warning("%s", warning)
        return _policy(resolved)

    def _resolve(self, project: SettingsFile | None) -> dict[str, Resolved]:
        return resolve(self._flags, self._environment, project, self._user)


def _policy(resolved: Mapping[str, Resolved]) -> SkillPolicy:
    unapproved, drift = resolved["serve.unapproved"], resolved["serve.bundle_drift"].value
    if unapproved.value == "confine":
        message = (
            f"serve.unapproved is confine (from {unapproved.origin}), but this omac cannot confine sidecars yet "
            "and refuses unapproved skills"
        )
        origin = unapproved.origin.partition(" ")[0]
        fix = {"user": "omac settings unset serve.unapproved", "environment": "unset OMAC_SERVE_UNAPPROVED"}
        raise Refusal("sandbox-unavailable", message, fix=[fix.get(origin, "--unapproved refuse")])
    treated: Unapproved = "allow" if unapproved.value == "allow" else "refuse"
    changed: Drift = "accept" if drift == "accept" else "refuse"
    return SkillPolicy(treated, changed, resolved["serve.auto_register"].value == "true")
