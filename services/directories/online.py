"""The directories that are online: their list, and whether one of them refuses a skill for code of the past."""

from omac.domain.directories.directory import Directory
from omac.domain.kernel import ids
from omac.projections.system import System
from omac.services.ports import SkillFolders


def online_directories(system: System, namespace: ids.HostId) -> list[dict[str, str]]:
    """The directories of a run that are not offline, with their states, as JSON has them."""
    return [
        {"dir": entry.state.path, "state": entry.state.status}
        for stream, entry in sorted(system.directories.entries.items())
        if entry.state.path and entry.state.status != "offline" and ids.key_of(stream).namespace == namespace
    ]


async def is_outdated(directory: Directory, folders: SkillFolders) -> bool:
    """Return whether a skill is refused for code that is no longer in its folder."""
    for name, route in directory.routes.items():
        if route.why == "skill-broken" and (skill := directory.skills.get(name)) is not None:
            try:
                if await folders.bundle_hash(skill.source) != skill.bundle_hash:
                    return True
            except OSError:
                return True
    return False
