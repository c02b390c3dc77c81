"""tools/compose/registered_skills.py: the skills that a host knows by its journal."""

import time
from contextlib import nullcontext

from omac.domain.kernel import ids
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import HostId
from omac.domain.skills.registration import Registered
from omac.projections.system import System
from omac.tools.compose.registered_skills import Registry

HOST = HostId("h1")
WORKDIRS = 3_000


def recorded(position: int, workdir: str, base: str) -> Recorded:
    """Return the record of a registration."""
    stream = ids.registration_stream(HOST, ids.workdir_id(workdir), base, "echo")
    event = Registered(f"{workdir}/{base}", "sha256:1", workdir)
    return Recorded(position, stream, 1, position, "run1", "person", None, None, event)


def test_each_skill_is_found_at_once() -> None:
    """Finding the registration of a skill, and the harness that names it, takes the same with thousands of others."""
    system = System()
    places = [(f"/w/{number}", base) for number in range(WORKDIRS) for base in ("agents", "opencode")]
    for position, (workdir, base) in enumerate(places, 1):
        system.apply(recorded(position, workdir, base))
    registry = Registry(HOST, system, lambda: nullcontext(lambda _: ()))
    began = time.process_time()
    for workdir, base in places:
        known = registry.find(ids.workdir_id(workdir), base, "echo")
        assert known is not None
        assert registry.place(known).harness == {"agents": "claude", "opencode": "opencode"}[base]
    assert time.process_time() - began < 1.0
