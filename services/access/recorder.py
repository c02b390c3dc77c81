"""Access: the gate of the facade, on the live routes and the journal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import trio
from msgspec.structs import astuple

from omac.domain.access import access
from omac.domain.access.access import AccessAborted, AccessCompleted, AccessRefused, AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Event, Recorded
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal, stopping
from omac.projections.access.routes import SHARED, ResolvedRoute, find_skill, resolve_route
from omac.services.access.port import Answer, Request
from omac.services.kernel.engine import Engine
from omac.services.kernel.refusals import Refusals

PATH_MAX = 1_024  # characters of a path that are recorded
RECORD_S = 5.0  # for the record of a request to become durable


@dataclass(eq=False, repr=False)
class _Watched:
    """A route in use, and what cuts it; compared by identity."""

    route: ResolvedRoute
    cut: Callable[[Refusal], None]


class JournalAccessRecorder:
    """The gate of a server: routes come from its projections, and its engine records accesses. `only` is the one
    directory of a run, to which its own socket leads without a token."""

    def __init__(self, engine: Engine, refusals: Refusals, only: StreamId | None = None) -> None:
        self._engine = engine
        self._refusals = refusals
        self._only = only
        self._stream = ids.access_stream(engine.host)
        self._in_use: dict[StreamId, dict[_Watched, None]] = {}  # by the directories that can end a route
        self._stopping = False

    def notice(self, recorded: Recorded) -> None:
        """Cut the routes that an event has ended."""
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
        digest = self._digest(token)
        return self._resolve(digest, mount if token is not None else self._flat_mount(digest, mount))

    async def admit(self, route: ResolvedRoute, request: Request) -> int:
        """See AccessRecorder. What changed while the record was made durable counts: the route is looked up again."""
        event = AccessRequested(
            route.dir, route.skill, route.mount, route.session, request.method, self._recorded(request.path)
        )
        recorded = await self._admitted(event)
        try:
            now = self._resolve(route.digest, route.mount)
            if now.port != route.port:
                raise Refusal("sidecar-down", f"{route.skill}: its sidecar was restarted; try again")
        except Refusal as refusal:
            self.aborted(recorded.position, Answer(refusal.status, 0, 0, 0), refusal.reason)
            raise
        return recorded.position

    @contextmanager
    def while_valid(self, route: ResolvedRoute, cut: Callable[[Refusal], None]) -> Iterator[None]:
        watched = _Watched(route, cut)
        streams = self._streams(route)
        for stream in streams:
            self._in_use.setdefault(stream, {})[watched] = None
        try:
            self._cut_unless_open(watched)
            yield
        finally:
            for stream in streams:
                del self._in_use[stream][watched]
                if not self._in_use[stream]:
                    del self._in_use[stream]

    def _resolve(self, digest: TokenDigest, mount: str) -> ResolvedRoute:
        opened = self._engine.system.tokens.streams.get(digest)
        if self._engine.is_revoked(digest) or (opened is not None and self._engine.is_revoked(opened)):
            raise _unknown()
        route = resolve_route(self._engine.system, self._engine.namespace, digest, mount)
        if any(map(self._engine.is_revoked, self._streams(route))):  # rule 1: at once, recorded or not
            raise _unknown()
        return route

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

    def _streams(self, route: ResolvedRoute) -> list[StreamId]:
        """The directories that can end a route."""
        streams = [ids.directory_stream(self._engine.namespace, ids.scope_of(route.dir))]
        if route.mount.startswith(SHARED):
            streams.append(ids.directory_stream(self._engine.namespace, ids.GLOBAL))
        return streams

    def _cut_ended(self, stream: StreamId) -> None:
        for watched in tuple(self._in_use.get(stream, ())):
            self._cut_unless_open(watched)

    def _cut_unless_open(self, watched: _Watched) -> None:
        route = watched.route
        _, skill, mounted = find_skill(self._engine.system, self._engine.namespace, route.digest, route.mount)
        revoked = self._engine.is_revoked(route.digest) or any(map(self._engine.is_revoked, self._streams(route)))
        if revoked or skill != route.skill or mounted is None or mounted.why is not None:
            watched.cut(stopping() if self._stopping else _revoked(route))

    def completed(self, access: int, answer: Answer) -> None:
        assert answer.status is not None
        self._soon(access, AccessCompleted(access, *astuple(answer)))

    def aborted(self, access: int, answer: Answer, reason: str) -> None:
        self._soon(access, AccessAborted(access, reason, *astuple(answer)))

    async def _admitted(self, event: AccessRequested) -> Recorded:
        """The record, once durable. A journal that stalls refuses in time, and what it records later is aborted."""

        def late(records: Sequence[Recorded]) -> None:
            for recorded in records:
                self.aborted(recorded.position, Answer(503, 0, 0, 0), "journal-slow")

        with trio.move_on_after(RECORD_S):
            (recorded,) = await self._engine.execute(access.AGGREGATE, self._stream, event, Cause("agent"), late=late)
            return recorded
        raise _slow()

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
        fact = Addressed(access.AGGREGATE, self._stream, event)
        if directory.path:
            with trio.move_on_after(RECORD_S):
                await self._engine.record([fact], Cause("agent"), late=lambda _: None)
                return
            raise _slow()
        # a stranger: any number of them may come
        await self._refusals.note(fact, Cause("agent"), (reason,))

    def _recorded(self, path: str) -> str:
        """As much of a path as is recorded: tokens are replaced before it is cut, or half of one could stay."""
        return path if len(path) <= PATH_MAX else self._engine.scrubbed(path)[:PATH_MAX]

    def _soon(self, request: int, event: Event) -> None:
        self._engine.record_soon([Addressed(access.AGGREGATE, self._stream, event)], Cause("agent", None, request))


def _unknown() -> Refusal:
    return Refusal("unknown-mount", "omac: unknown skill mount", fix=("omac status",))


def _slow() -> Refusal:
    message = f"the journal did not record the request within {RECORD_S:g} s; nothing was forwarded"
    return Refusal("journal-unavailable", message, fix=["omac journal path  # is its disk slow, or full?"])


def _revoked(route: ResolvedRoute) -> Refusal:
    message = f"{route.skill}: its token or its route ended while the request was under way"
    return Refusal("revoked", message, fix=["omac status"], skill=route.skill)
