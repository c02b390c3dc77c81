"""The limits of calls of a skill, as a server that starts now would have them."""

from collections.abc import Mapping

from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.settings.files import read_user
from omac.domain.directories.events import MAX_BODY_BYTES
from omac.domain.settings.owner_limits import (
    ALL_CONCURRENT,
    ALL_PER_SECOND,
    HEAD_BYTES,
    OF_A_SKILL,
    PREFIX,
    HeldLimit,
    held_limit,
    owner_limits,
)
from omac.domain.settings.settings import resolve
from omac.domain.skills.meta import Limits


def limits_of_calls(skill: str, own: Limits, environment: Mapping[str, str]) -> dict[str, HeldLimit]:
    """Return each limit by its name, which is that of the setting without its prefix; in omac.yaml it has the same.
    Raises Refusal (settings-invalid)."""
    resolved = resolve({}, environment, None, read_user(environment))
    owner = owner_limits({name: setting.value for name, setting in resolved.items() if name.startswith(PREFIX)})
    defaults = {
        "max_body_bytes": MAX_BODY_BYTES,
        "idle_timeout_secs": int(FacadeLimits().body_idle_timeout_s),
        HEAD_BYTES.removeprefix(PREFIX): FacadeLimits().head_bytes_max,
    }
    own_limits = {name: getattr(own, name) for name in own.__struct_fields__}
    own_limits["idle_timeout_secs"] = own.idle_timeout_secs or None  # 0 is none of its own
    owners = {setting.removeprefix(PREFIX): getattr(owner.of(skill), field) for field, setting in OF_A_SKILL.items()}
    of_all = {ALL_CONCURRENT: owner.concurrent, ALL_PER_SECOND: owner.per_second, HEAD_BYTES: owner.head_bytes}
    owners |= {setting.removeprefix(PREFIX): value for setting, value in of_all.items()}
    return {name: held_limit(own_limits.get(name), value, defaults.get(name)) for name, value in owners.items()}
