"""Denials of the write guard that an agent's bridge reports. They are recorded as claims: any program that holds the
bridge's token can report one.
"""

from typing import Annotated, Any, NamedTuple

import msgspec

from omac.domain.guard import denial
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause
from omac.services.kernel.engine import Engine
from omac.services.kernel.refusals import Refusals

KINDS_MAX = 32  # of claims that differ, in an interval: an agent that makes up others gets those counted, no more
TEXT_MAX = 1_024  # characters
Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=200)]


class DenialClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A denial as a bridge reports it; see `GuardDenied`."""

    harness: Name
    tool: Name
    path: Text
    root: Text
    probable: Text = ""
    session: Name | None = None


class DenialClaims(NamedTuple):
    """The use case of one server. `refusals` bound how much of what a sandbox claims is recorded."""

    engine: Engine
    refusals: Refusals

    async def record(self, claim: DenialClaim, correlation: str) -> None:
        """Record one denial as claimed; equal ones within an interval are counted, and beyond KINDS_MAX any."""
        scrubbed = self.engine.scrubbed
        fields: dict[str, Any] = {
            name: scrubbed(text, TEXT_MAX) if text else text for name, text in msgspec.structs.asdict(claim).items()
        }
        fact = Addressed(denial.AGGREGATE, ids.guard_stream(self.engine.host), GuardDenied(**fields, origin="bridge"))
        await self.refusals.note(fact, Cause("bridge", correlation), claim, kinds_max=KINDS_MAX)
