"""The events of directories, and what they say of skills and routes."""

from typing import Literal

import msgspec

from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import TokenDigest
from omac.domain.sidecars.sidecar import SidecarSpec

MAX_BODY_BYTES = 10 * 1024 * 1024  # when a skill names no limit of its own


class CallLimits(msgspec.Struct, frozen=True, array_like=True):
    """The limits that a skill's author sets for its calls; None: the author sets none. `idle_s` is how long both sides
    of a call may be silent, and `total_s` how long the whole call may take. `concurrent` is how many calls may be under
    way at once, `per_second` how many may begin in a second."""

    idle_s: int | None = None
    total_s: int | None = None
    concurrent: int | None = None
    per_second: int | None = None


class ActivationRequested(Event, frozen=True):
    """The directory shall come online for `harness`; `digest` is that of its first routing token ("" if it has
    none)."""

    path: str
    harness: str
    digest: TokenDigest


class SessionAdmitted(Event, frozen=True):
    """An agent's session got a routing token of its own."""

    session: str
    digest: TokenDigest


class SessionEnded(Event, frozen=True):
    """An agent's session lost its routing token: it was ended, or gave it up to one admitted later."""

    session: str
    digest: TokenDigest


class SkillAppeared(Event, frozen=True):
    """A skill was found, or found changed. `mount` is empty when it has none to offer."""

    name: str
    base: str
    source: str
    bundle_hash: str
    mount: str


class SkillPlanned(Event, frozen=True):
    """A skill was planned: a sidecar by `spec` shall run, reached with bodies of at most `max_body_bytes` and within
    `limits`. Without a `spec`, `problem` is the reason."""

    name: str
    spec: SidecarSpec | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    problem: str = ""
    limits: CallLimits = CallLimits()


class SkillVanished(Event, frozen=True):
    """A skill is no longer there."""

    name: str


class RouteMounted(Event, frozen=True):
    """`/<token>/<mount>/` leads to the skill's sidecar, for bodies of at most `max_body_bytes`, within `limits`."""

    skill: str
    mount: str
    max_body_bytes: int = MAX_BODY_BYTES
    limits: CallLimits = CallLimits()


NOT_APPROVED = "not host-approved"  # begins the detail of a skill whose code nobody approved, then ": " and why


class RouteStubbed(Event, frozen=True):
    """`/<token>/<mount>/` is answered with a reason. `mount` is empty when another skill has it."""

    skill: str
    mount: str
    why: Literal["pending-credentials", "skill-broken"]
    detail: str
    missing: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()


class RouteUnmounted(Event, frozen=True):
    """The skill no longer has a route."""

    skill: str


class Activated(Event, frozen=True):
    """Every skill is ready."""


class ActivatedPartially(Event, frozen=True):
    """The directory can be used; at least one skill is not ready."""


class ActivationFailed(Event, frozen=True):
    """The directory could not be brought online; `detail` is the reason."""

    detail: str


class ReloadRequested(Event, frozen=True):
    """The directory's skills shall be discovered again, and the sidecars of `restarts` replaced, unchanged as they
    are."""

    restarts: tuple[str, ...] = ()


class DeactivationRequested(Event, frozen=True):
    """The directory shall go offline; `why` is the reason in a few words. Its tokens are dead."""

    why: str


class Deactivated(Event, frozen=True):
    """The directory is offline, and nothing of it runs."""


class Skill(msgspec.Struct, frozen=True):
    """A skill as it was found."""

    name: str
    base: str
    source: str
    bundle_hash: str
    mount: str


class SkillPlan(msgspec.Struct, frozen=True):
    """The sidecar that shall run for a skill, or none where `spec` is None."""

    spec: SidecarSpec | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    limits: CallLimits = CallLimits()


class Route(msgspec.Struct, frozen=True):
    """The route to a skill: it leads to a sidecar, called within `limits` (`why` is None), or is answered with a
    reason."""

    mount: str
    max_body_bytes: int = MAX_BODY_BYTES
    why: Literal["pending-credentials", "skill-broken"] | None = None
    detail: str = ""
    missing: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    limits: CallLimits = CallLimits()
