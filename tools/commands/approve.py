"""omac approve: look at a skill as it is now, and record that a person vouches for it."""

import os
import secrets
from collections.abc import Callable, Mapping

import msgspec
import trio

from omac.adapters.linux.state import StateDir
from omac.adapters.skills.folders import DiskSkillFolders
from omac.domain.harness import harness_named
from omac.domain.skill import FoundSkill
from omac.journal.opening import open_journal
from omac.services.approval import approve, find_skill
from omac.tools.render import say


def run(
    name: str,
    workdir: str,
    harness: str,
    journal_path: str | None,
    as_json: bool,
    environment: Mapping[str, str],
    clock: Callable[[], int],
) -> int:
    """Approve the skill `name` in `workdir`. Raises Refusal."""
    bases = harness_named(harness).bases
    folders = DiskSkillFolders()
    state = StateDir.of(environment)

    asked = os.path.abspath(os.path.expanduser(workdir))

    async def find() -> tuple[str, FoundSkill]:
        canonical = await folders.canonical(asked, ("/",))
        return canonical, await find_skill(folders, canonical, bases, name)

    canonical, skill = trio.run(find)
    host = state.host_id(lambda: secrets.token_hex(8))
    journal = open_journal(state.journal_in_use(environment, journal_path), secrets.token_hex(6), clock)
    try:
        changed = approve(journal, host, canonical, skill)
    finally:
        journal.close()
    told = {"skill": name, "dir": canonical, "source": skill.source, "bundle_hash": skill.bundle_hash, "new": changed}
    if as_json:
        print(msgspec.json.encode(told).decode())
    else:
        say(f"{'approved' if changed else 'already approved'}: {name} in {skill.source}")
        say(f"  {skill.bundle_hash}")
    return 0
