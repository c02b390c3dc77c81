"""omac approve: look at a skill as it is now, and record that a person vouches for it."""

import os
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import trio

from omac.adapters.linux.state import StateDir
from omac.adapters.skills.folders import DiskSkillFolders
from omac.domain.harness import harness_named
from omac.domain.refusal import Refusal
from omac.domain.skill import Config, FoundSkill, Secret
from omac.journal.opening import open_journal
from omac.services.approval import approve, find_skill
from omac.tools.render import say


class Asked(NamedTuple):
    """The command line, as typed. `bundle_hash` None: whatever its code is now."""

    skill: str
    workdir: str
    harness: str
    bundle_hash: str | None
    journal: str | None
    json: bool


def run(asked: Asked, environment: Mapping[str, str], clock: Callable[[], int]) -> int:
    """Approve a skill. Raises Refusal."""
    folders = DiskSkillFolders()
    bases = harness_named(asked.harness).bases
    workdir = os.path.abspath(os.path.expanduser(asked.workdir))

    async def find() -> tuple[str, FoundSkill]:
        canonical = await folders.canonical(workdir, ("/",))
        return canonical, await find_skill(folders, canonical, bases, asked.skill)

    canonical, skill = trio.run(find)
    if asked.bundle_hash not in (None, skill.bundle_hash):
        message = f"{asked.skill} in {skill.source} is not the code that was meant: its hash is {skill.bundle_hash} now"
        raise Refusal("skill-changed", message, fix=["omac status  # then look at the code again"])
    state = StateDir.of(environment)
    host = state.host_id(lambda: secrets.token_hex(8))
    journal = open_journal(state.journal_in_use(environment, asked.journal), secrets.token_hex(6), clock)
    try:
        changed = approve(journal, host, canonical, skill)
    finally:
        journal.close()
    _tell(asked, canonical, skill, changed)
    return 0


def _tell(asked: Asked, workdir: str, skill: FoundSkill, changed: bool) -> None:
    assert skill.meta is not None
    assert skill.meta.sidecar is not None
    sidecar = skill.meta.sidecar
    fields: tuple[Secret | Config, ...] = (*sidecar.secrets, *sidecar.config)
    granted = sorted({*sidecar.env_passthrough, *(f.default_from_env for f in fields if f.default_from_env)})
    if asked.json:
        told = {
            "skill": skill.name,
            "dir": workdir,
            "source": skill.source,
            "bundle_hash": skill.bundle_hash,
            "command": sidecar.command,
            "variables": granted,
            "new": changed,
        }
        print(msgspec.json.encode(told).decode())
        return
    say(f"{'approved' if changed else 'already approved'}: {skill.name} in {skill.source}")
    say(f"  {skill.bundle_hash}")
    say(f"  it runs as you: {' '.join(sidecar.command)}")
    if granted:
        say(f"  and may read these variables of yours: {', '.join(granted)}")
