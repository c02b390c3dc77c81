"""Access: the gate of the facade, on the live routes and the journal."""

from collections.abc import Callable
from functools import partial

import trio
from msgspec.structs import astuple, replace

from omac.domain.access.access import (
    AGGREGATE,
    AccessAborted,
    AccessCompleted,
    AccessRefused,
    AccessRequested,
    position_of,
)
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal, stopping
from omac.domain.settings.owner_limits import OwnerLimits
from omac.projections.access.routes import (
    SHARED,
    ResolvedRoute,
    find_skill,
    has_lost_approval,
    resolve_route,
    unknown_mount,
)
from omac.services.access.call_batches import CallBatches
from omac.services.access.call_gauges import CallGauges, CountedFor
from omac.services.access.port import Answer, CallSoon, Request
from omac.services.kernel.engine import Engine
from omac.services.kernel.refusals import Refusals

PATH_MAX = 1_024  # characters of a path that are recorded
RECORD_S = 5.0  # for the record of a request to become durable

_AGENT = Cause("agent")
_Cut = Callable[[Refusal], None]


class JournalAccessRecorder:
    """The gate of a server: routes come from its projections, and its engine records accesses. `only` is the one
    directory of a run, to which its own socket leads without a token; `owner`: what the owner of the host allows."""

    def __init__(
        self,
        engine: Engine,
        refusals: Refusals,
        only: StreamId | None = None,
        owner: OwnerLimits = OwnerLimits(),  # noqa: B008  # frozen
    ) -> None:
        self._engine = engine
        self._refusals = refusals
        self._only = only
        self._stream = ids.access_stream(engine.host)
        self._open: dict[tuple[TokenDigest | None, str], ResolvedRoute] = {}  # as far as somebody asked
        self._in_use: dict[_Cut, ResolvedRoute] = {}  # the routes of calls under way, and what cuts each
        self._owner = owner
        self._gauges = CallGauges(trio.current_time, owner)
        self._batches = CallBatches(engine, self._stream)
        self._stopping = False

    def notice(self, recorded: Recorded) -> None:
        """Cut the routes that an event has ended; accesses end none, and change none."""
        self._open.clear()
        self._cut_ended(recorded.stream)

    def notice_revocation(self, stream: StreamId, _cause: Cause | None) -> None:
        """Cut the routes that a revocation has ended which is not recorded yet."""
        self._cut_ended(stream)

    def stop(self) -> None:
        """omac ends: no more routes, and those in use end as `stopping`."""
        self._stopping = True

    def knows(self, token: str) -> bool:
        return self._is_own(ids.token_digest(token))

    def resolve(self, token: str | None, mount: str) -> ResolvedRoute:
        if self._stopping:
            raise stopping()
        if token is not None:
            route = self._resolve(ids.token_digest(token), mount)
        else:
            known = self._open.get((None, mount))
            digest = self._digest(None) if known is None else known.digest
            route = self._resolve(digest, self._flat_mount(digest, mount) if known is None else known.mount)
            self._open[None, mount] = route
        self._gauges.check(route)
        return route

    async def admit(self, route: ResolvedRoute, request: Request) -> int:
        """Implement AccessRecorder: record the request, then check that its route is still open. A journal that stalls
        refuses in time; what it records later is aborted, and what it refuses then is counted."""
        answers: list[int | Exception] = []
        answered, is_awaited = trio.Event(), True

        def answer(access: int | Exception) -> None:
            if is_awaited:
                answers.append(access)
                answered.set()
            elif isinstance(access, int):
                self.aborted(access, Answer(503, 0, 0, 0), "journal-slow")

        self.admit_then(route, request, answer)
        try:
            with trio.move_on_after(RECORD_S):
                await answered.wait()
            if not answers:
                raise _slow()
        except BaseException:
            is_awaited = False
            for access in answers:  # it came in the moment in which the wait was cancelled
                answer(access)
            raise
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def admit_then(
        self,
        route: ResolvedRoute,
        request: Request,
        answered: Callable[[int | Exception], None],
        *,
        ahead: bool = False,
    ) -> CountedFor:
        """Implement AccessRecorder, and return the value that `end_ahead` takes. `ahead`: the request is forwarded
        before its record, so that the record decides nothing."""

        counted = self._gauges.reserve(route)
        recorded = partial(self._answer, route, request, answered, counted, ahead)
        try:
            self._batches.begin(route, request.method, self._recorded(request.path), recorded)
        except Exception as problem:
            self._gauges.release(counted)
            if isinstance(problem, Refusal):
                self._count_unrecorded(self._requested(route, request), problem)
            raise
        return counted

    def _answer(
        self,
        route: ResolvedRoute,
        request: Request,
        answered: Callable[[int | Exception], None],
        counted: CountedFor,
        ahead: bool,  # as `admit_then` has it
        answer: int | Exception,
    ) -> None:
        """Tell who has a call recorded whether it may go to its skill: it has its record, or there is none."""
        if isinstance(answer, Exception):
            self._gauges.release(counted)
            if isinstance(answer, Refusal) and not ahead:
                self._count_unrecorded(self._requested(route, request), answer)
            answered(answer)
            return
        self._gauges.begin(counted, answer)
        try:
            admitted: int | Exception = answer if ahead else self._still_open(route, answer)
        except Refusal as refusal:
            admitted = refusal
        answered(admitted)

    def end_ahead(self, counted: CountedFor) -> None:
        """A call has ended while it is being recorded: it is under way no longer."""
        self._gauges.release(counted)

    def _requested(self, route: ResolvedRoute, request: Request) -> AccessRequested:
        path = self._recorded(request.path)
        return AccessRequested(route.dir, route.skill, route.mount, route.session, request.method, path)

    def _still_open(self, route: ResolvedRoute, admitted: int) -> int:
        """The id of an access that is recorded. What changed while it was made durable counts: the route is looked up
        again."""
        if self._is_current(route):
            return admitted
        try:
            if self._stopping:
                raise stopping()
            now = self._resolve(route.digest, route.mount)
            if now.port != route.port:
                message = f"{route.skill}: its sidecar was restarted; try again"
                raise Refusal("sidecar-down", message, skill=route.skill)
        except Refusal as refusal:
            self.aborted(admitted, Answer(refusal.status, 0, 0, 0), refusal.reason)
            raise
        return admitted

    def answer_by(self, call_soon: CallSoon | None) -> None:
        self._engine.answer_by(call_soon)

    def watch(self, route: ResolvedRoute, cut: _Cut) -> None:
        self._in_use[cut] = route
        if not self._is_current(route):
            self._cut_if_ended(cut, route)

    def unwatch(self, cut: _Cut) -> None:
        self._in_use.pop(cut, None)

    def _is_current(self, route: ResolvedRoute) -> bool:
        """Return whether no change since the route was resolved could have ended it."""
        return self._open.get((route.digest, route.mount)) is route and not self._engine.revoked

    def _resolve(self, digest: TokenDigest, mount: str) -> ResolvedRoute:
        route = self._open.get((digest, mount))
        if route is None:
            opened = self._engine.system.tokens.streams.get(digest)
            if digest in self._engine.revoked or opened in self._engine.revoked:
                raise unknown_mount()
            route = resolve_route(self._engine.system, self._engine.namespace, digest, mount)
            if has_lost_approval(self._engine.system, route) or self._engine.is_revoking(self._sidecar(route)):
                raise _revoked(route)  # though other code may have been approved since
            route = self._open[digest, mount] = route.within(self._owner.of(route.skill))
        if self._engine.revoked and self._is_revoked(route):  # rule 1: at once, recorded or not
            raise unknown_mount()
        return route

    def _is_revoked(self, route: ResolvedRoute) -> bool:
        revoked = self._engine.revoked
        return route.digest in revoked or any(stream in revoked for stream in route.streams)

    def _digest(self, token: str | None) -> TokenDigest:
        """The digest of a token; None: that of the launch token of the one directory, or of no token."""
        if token is not None:
            return ids.token_digest(token)
        tokens = self._engine.system.directories[self._only].state.tokens if self._only else {}
        return next((digest for digest, session in tokens.items() if session is None), ids.token_digest(""))

    def _flat_mount(self, digest: TokenDigest, mount: str) -> str:
        """The mount that is meant without a token: the directory's own, else one that all directories share."""
        _, own, _ = find_skill(self._engine.system, self._engine.namespace, digest, mount)
        shared = f"{SHARED}{mount}"
        _, other, _ = find_skill(self._engine.system, self._engine.namespace, digest, shared)
        return shared if own is None and other is not None else mount

    def _is_own(self, digest: TokenDigest) -> bool:
        stream = self._engine.system.tokens.streams.get(digest)
        return stream is not None and stream.startswith(f"directory/{self._engine.namespace}/")

    def _cut_ended(self, stream: StreamId) -> None:
        for cut, route in tuple(self._in_use.items()):
            if stream in (*route.streams, route.approval):
                self._cut_if_ended(cut, route)

    def _cut_if_ended(self, cut: _Cut, route: ResolvedRoute) -> None:
        if (ended := self._ended(route)) is not None:
            cut(ended)

    def _ended(self, route: ResolvedRoute) -> Refusal | None:
        """Return what a call under way is refused with because its route has ended; None: it has not. A revoked
        approval ends it at once, before the directory has its skills planned again and the sidecar is stopped."""
        system = self._engine.system
        _, skill, mounted = find_skill(system, self._engine.namespace, route.digest, route.mount)
        is_open = skill == route.skill and mounted is not None and mounted.why is None
        if is_open and not self._is_revoked(route) and not has_lost_approval(system, route):
            return None
        return stopping() if self._stopping else _revoked(route)

    def stopped(self, route: ResolvedRoute) -> Refusal | None:
        """Implement AccessRecorder. A sidecar that has served a call is idle only if omac has stopped it: it may be so
        for a while before its route ends. One of a later generation is in its place: a client may read on only then."""
        if (ended := self._ended(route)) is not None:
            return ended
        sidecar = self._engine.system.sidecars[self._sidecar(route)].state
        if sidecar.status in ("stopping", "idle") or sidecar.generation != route.generation:
            return Refusal("sidecar-down", f"{route.skill}: its sidecar was stopped; try again", fix=["omac status"])
        return None

    def _sidecar(self, route: ResolvedRoute) -> StreamId:
        scope = ids.GLOBAL if route.mount.startswith(SHARED) else ids.scope_of(route.dir)
        return ids.sidecar_stream(self._engine.namespace, scope, route.skill)

    def completed(self, access: int, answer: Answer) -> None:
        assert answer.status is not None
        self._gauges.end(access)
        status, bytes_in, bytes_out, duration_us = answer.status, answer.bytes_in, answer.bytes_out, answer.duration_us
        self._batches.end(access, AccessCompleted(position_of(access), status, bytes_in, bytes_out, duration_us))

    def aborted(self, access: int, answer: Answer, reason: str) -> None:
        self._gauges.end(access)
        self._batches.end(access, AccessAborted(position_of(access), reason, *astuple(answer)))

    def _count_unrecorded(self, event: AccessRequested, refusal: Refusal) -> None:
        """Count a request that was refused because it could not be recorded."""
        reason = refusal.reason
        refused = AccessRefused(
            event.dir, event.skill, event.mount, event.session, event.method, event.path, refusal.status, reason
        )
        fact = Addressed(AGGREGATE, self._stream, refused)
        self._refusals.count(fact, _AGENT, (event.dir, event.skill, event.session, reason), _anybodys(refused))

    async def refused(self, token: str | None, mount: str, request: Request, status: int, reason: str) -> None:
        digest = self._digest(token)
        if token is None:
            mount = self._flat_mount(digest, mount)
        directory, skill, _ = find_skill(self._engine.system, self._engine.namespace, digest, mount)
        event = AccessRefused(
            directory.path or None,
            skill,
            mount if skill else "",  # what is no mount may be anything, even a token
            directory.tokens.get(digest),
            request.method,
            self._recorded(request.path) if directory.path else "",
            status,
            reason,
        )
        fact = Addressed(AGGREGATE, self._stream, event)
        # any number of them may come: of strangers one event an interval, of known callers a bounded number
        kind = (event.dir, event.skill, event.session, reason)
        await self._refusals.note(fact, _AGENT, kind, stranger=not directory.path, beyond=_anybodys(event))

    def _recorded(self, path: str) -> str:
        """Return the part of a path that is recorded. Tokens are replaced before a long path is cut, or half of a token
        could stay."""
        return path if len(path) <= PATH_MAX else self._engine.scrubbed(path, PATH_MAX)


def _anybodys(refused: AccessRefused) -> AccessRefused:
    """Return a refusal without what says whose it is."""
    return replace(refused, dir=None, skill=None, mount="", session=None, path="")


def _slow() -> Refusal:
    message = f"the journal did not record the request within {RECORD_S:g} s; nothing was forwarded"
    return Refusal("journal-unavailable", message, fix=["omac journal path  # is its disk slow, or full?"])


def _revoked(route: ResolvedRoute) -> Refusal:
    message = f"{route.skill}: its token, its approval or its route ended while the request was under way"
    return Refusal("revoked", message, fix=["omac status"], skill=route.skill)
