"""A registration: what this host knows of one skill in one scope, and whether a person approved its code.

Rules

1. Finding a skill registers it; registering never approves it.
2. An approval holds for one source folder and one bundle hash, and for the copy that was frozen with it: that copy is
   what runs. Other code under the same name inherits nothing; an approval without a copy approves nothing.
3. With it the programs of the host by which the code runs are approved, as they were then
   (`domain/skills/interpreter.py`).
4. Code that differs from what was approved is recorded as drifted, once for each new code. Where only files differ
   that the bundle hash leaves out, the approved copy goes on running.
5. Changed code may be accepted by one run, for itself; the next run starts from what was approved.
6. Removing a registration revokes its approval.
7. In the scope of a repository (`domain/skills/repository.py`) an approval holds in each worktree, for files with
   exactly the approved digest, wherever they are. The bundle hash must be the approved one, too: the digest is taken
   after the command was read, and an agent may put other files there in between.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.skills.interpreter import Interpreter

UNREADABLE = "unreadable"  # in the place of a digest: the files cannot be copied as they are


class AutoRegistered(Event, frozen=True):
    """An activation found it. `workdir` is empty for a skill shared by all projects."""

    source: str
    bundle_hash: str
    workdir: str = ""
    digest: str = ""


class Registered(Event, frozen=True):
    """A person registered it."""

    source: str
    bundle_hash: str
    workdir: str = ""
    digest: str = ""


class Approved(Event, frozen=True):
    """A person approved this code in this folder; `digest` addresses the copy that was frozen.

    `interpreters` are the programs outside that copy by which it runs; None: approved before they were resolved.
    """

    source: str
    bundle_hash: str
    digest: str = ""
    interpreters: tuple[Interpreter, ...] | None = None


class ApprovalRevoked(Event, frozen=True):
    """No code of the skill may run any more; `why` is the reason in a few words."""

    why: str


class Drifted(Event, frozen=True):
    """The skill's code is no longer the approved code. `accepted_by` names the run that runs it all the same, if one
    does."""

    source: str
    bundle_hash: str
    digest: str = ""
    accepted_by: str = ""


class Deregistered(Event, frozen=True):
    """A person removed the registration."""


class Code(msgspec.Struct, frozen=True):
    """The identity of code: the skill's canonical folder, its bundle hash, and the digest over every file ("" if not
    taken).

    `interpreters` are the programs outside by which it runs, as far as they were resolved.
    """

    source: str
    bundle_hash: str
    digest: str = ""
    interpreters: tuple[Interpreter, ...] | None = None

    def is_bundle(self, other: "Code | None") -> bool:
        """Return whether both have the same folder and the same bundle hash."""
        return other is not None and (self.source, self.bundle_hash) == (other.source, other.bundle_hash)


def closest(own: Code | None, shared: Code | None) -> Code | None:
    """Return which of two approvals for a skill runs, the one here or the one by repository: that here, unless it is
    for other files than those that were found, of which the one by repository always is."""
    return own if shared is None or (own is not None and own.digest == shared.digest) else shared


def shown_hash(bundle_hash: str, digest: str) -> str:
    """Return the hash of code as people read it, in every place the same: over every file, as an approval is for, and
    as `--hash` takes it. Where it was not taken, it is the one over the code, and says so."""
    return digest if digest not in ("", UNREADABLE) else f"{bundle_hash} (of the code alone)"


class Registration(msgspec.Struct, frozen=True):
    """`found` is the code seen last, `approved` the code that may run; None when there is none.

    `accepted` is changed code that the run `accepted_by` runs too. `workdir` is empty for a skill shared by all.
    """

    found: Code | None = None
    approved: Code | None = None
    workdir: str = ""
    accepted: Code | None = None
    accepted_by: str = ""

    @property
    def status(self) -> "Status":
        if self.found is None:
            return "unknown"
        return "known" if self.approved is None else "approved"

    def covers(self, code: Code) -> Code | None:
        """The frozen code that stands for `code` by rule 7; None where a hash is another, or no digest was taken."""
        if self.approved is None or not code.digest:
            return None
        approved = self.approved.bundle_hash, self.approved.digest
        return self.approved if approved == (code.bundle_hash, code.digest) else None

    def may_run(self, code: Code, run: str) -> Code | None:
        """The frozen code that stands for `code` in this run; None when it is not approved."""
        if self.approved is not None and self.approved.digest and self.approved.is_bundle(code):
            return self.approved
        if self.accepted is not None and self.accepted_by == run and self.accepted.is_bundle(code):
            return self.accepted
        return None


Status = Literal["unknown", "known", "approved"]

TABLE: dict[tuple[Status, type[Event]], Status] = {
    ("unknown", AutoRegistered): "known",
    ("unknown", Registered): "known",
    ("known", AutoRegistered): "known",
    ("known", Registered): "known",
    ("known", Approved): "approved",
    ("known", Deregistered): "unknown",
    ("approved", AutoRegistered): "approved",
    ("approved", Registered): "approved",
    ("approved", Drifted): "approved",
    ("approved", Approved): "approved",
    ("approved", ApprovalRevoked): "known",
}


class Discover(msgspec.Struct, frozen=True):
    """Command: an activation found this code."""

    code: Code
    workdir: str


class Accept(msgspec.Struct, frozen=True):
    """Command: this run was told to accept changed code; `code` is its frozen copy."""

    code: Code
    run: str


class Register(msgspec.Struct, frozen=True):
    """Command: a person wants this skill known."""

    code: Code
    workdir: str


class Approve(msgspec.Struct, frozen=True):
    """Command: a person approves this code, of which there is a copy."""

    code: Code
    workdir: str


class Revoke(msgspec.Struct, frozen=True):
    """Command: a person revokes the approval."""

    why: str


class Deregister(msgspec.Struct, frozen=True):
    """Command: a person wants it forgotten."""


Command = Discover | Accept | Register | Approve | Revoke | Deregister


def decide(command: Command, state: Registration) -> list[Event]:
    """The events that `command` means in `state`; none when nothing is new."""
    match command:
        case Discover(code, workdir):
            if state.found == code or (not code.digest and code.is_bundle(state.found)):
                return []
            approved = state.approved
            if approved is not None and not (approved.is_bundle(code) and code.digest in ("", approved.digest)):
                return [Drifted(code.source, code.bundle_hash, code.digest)]
            return [AutoRegistered(code.source, code.bundle_hash, workdir, code.digest)]
        case Accept(code, run):
            if state.approved is None or (state.accepted == code and state.accepted_by == run):
                return []
            return [Drifted(code.source, code.bundle_hash, code.digest, run)]
        case Register(code, workdir):
            return [] if code.is_bundle(state.found) and state.workdir == workdir else _registered(code, workdir)
        case Approve(code, workdir):
            if state.approved == code:
                return []
            known = [] if code.is_bundle(state.found) and state.workdir == workdir else _registered(code, workdir)
            return [*known, Approved(code.source, code.bundle_hash, code.digest, code.interpreters)]
        case Revoke(why):
            return [] if state.approved is None else [ApprovalRevoked(why)]
        case Deregister():
            if state.found is None and state.approved is None:
                return []
            return [*decide(Revoke("deregistered"), state), Deregistered()]


def _registered(code: Code, workdir: str) -> list[Event]:
    return [Registered(code.source, code.bundle_hash, workdir, code.digest)]


def evolve(state: Registration, event: Event) -> Registration:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    TABLE[state.status, type(event)]
    match event:
        case AutoRegistered(source, bundle_hash, workdir, digest) | Registered(source, bundle_hash, workdir, digest):
            return replace(state, found=Code(source, bundle_hash, digest), workdir=workdir or state.workdir)
        case Drifted(source, bundle_hash, digest, accepted_by):
            code = Code(source, bundle_hash, digest)
            if accepted_by:
                return replace(state, found=code, accepted=code, accepted_by=accepted_by)
            return replace(state, found=code)
        case Approved(source, bundle_hash, digest, interpreters):
            found, approved = Code(source, bundle_hash, digest), Code(source, bundle_hash, digest, interpreters)
            return replace(state, found=found, approved=approved, accepted=None, accepted_by="")
        case ApprovalRevoked():
            return replace(state, approved=None, accepted=None, accepted_by="")
        case Deregistered():
            return Registration()
        case _:
            raise KeyError(type(event).__name__)


EVENTS: tuple[type[Event], ...] = (AutoRegistered, Registered, Approved, ApprovalRevoked, Drifted, Deregistered)
AGGREGATE = Aggregate("registration", Registration(), decide, evolve, EVENTS)
