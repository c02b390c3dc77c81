"""The facade's data plane without a journal behind it: the very server of omac, and a recorder that records nothing.

As a program it prints its port, and serves until it is killed: `facade_unrecorded PORT [ROUTES JOURNAL]`, where PORT is
that of the skill, to which one fixed route leads. With ROUTES: so many routes as omac's own recorder resolves them, in
the projections of a journal, a new one at the path JOURNAL, with as many tokens and mounts.
"""

import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import trio

from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.server import Facade, FacadeListener
from omac.adapters.http.slots import SlotLimits
from omac.adapters.linux import listen
from omac.domain.directories.events import Activated, ActivationRequested, RouteMounted, SessionAdmitted
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft, Event
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import Birth, Healthy, SidecarSpec, SpawnRequested, Started
from omac.journal.application import Journal
from omac.journal.opening import open_journal
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.port import Answer, CallSoon, Request
from omac.services.access.recorder import JournalAccessRecorder
from omac.services.kernel.engine import Engine
from omac.services.kernel.refusals import Refusals
from omac.tools.entry import GC_OBJECTS

HOST = HostId("bench")
CONNECTIONS_MAX = 8_192
Cut = Callable[[Refusal], None]
SESSIONS, SKILLS = 20, 20  # of a directory, where there are many routes


class Unrecorded:
    """An access recorder that resolves routes, admits each request at once, and makes no record."""

    def __init__(
        self,
        resolve: Callable[[str | None, str], ResolvedRoute],
        watch: Callable[[ResolvedRoute, Cut], None] = lambda _route, _cut: None,
        unwatch: Callable[[Cut], None] = lambda _cut: None,
    ) -> None:
        self.resolve = resolve
        self.watch = watch
        self.unwatch = unwatch
        self._accesses = itertools.count(1)

    def knows(self, token: str) -> bool:
        return True

    async def admit(self, route: ResolvedRoute, request: Request) -> int:
        await trio.lowlevel.checkpoint()
        return next(self._accesses)

    def admit_then(self, route: ResolvedRoute, request: Request, answered: Callable[[int | Exception], None]) -> None:
        answered(next(self._accesses))

    def answer_by(self, call_soon: CallSoon | None) -> None:
        pass

    def stopped(self, route: ResolvedRoute) -> None:
        return None

    def completed(self, access: int, answer: Answer) -> None:
        pass

    def aborted(self, access: int, answer: Answer, reason: str) -> None:
        pass

    async def refused(self, token: str | None, mount: str, request: Request, status: int, reason: str) -> NoReturn:
        raise AssertionError(f"{request.method} {request.path}: {reason}")


def fixed(port: int) -> Unrecorded:
    """Return a recorder with one route, which every request takes."""
    route = ResolvedRoute("/projects", "answering", "answering", None, port, 1 << 31, ids.token_digest(token(0, 0)))
    return Unrecorded(lambda _token, _mount: route)


def projected(port: int, journal: Journal, routes: int) -> Unrecorded:
    """Return a recorder with routes as omac has them: in the projections of a journal."""
    envelope = journal.envelope(Cause("person"))
    for stream, events in streams(port, routes):
        drafts = tuple(Draft(stream, version, event) for version, event in enumerate(events, 1))
        journal.commit([journal.group(drafts, envelope)])
    engine = Engine(journal, HOST)
    recorder = JournalAccessRecorder(engine, Refusals(engine))
    return Unrecorded(recorder.resolve, recorder.watch, recorder.unwatch)


def streams(port: int, routes: int) -> Iterator[tuple[ids.StreamId, list[Event]]]:
    """Yield the events of directories that are online, and of the sidecars that their routes lead to."""
    namespace, birth = ids.server_namespace(HOST), Birth(1, 1, "boot", port, isolated=False, log="/log")
    for directory in sorted({directory for directory, _, _ in places(routes)}):
        path = f"/projects/p{directory}"
        scope = ids.scope_of(path)
        sessions = sorted({session for at, session, _ in places(routes) if at == directory})
        skills = sorted({skill for at, _, skill in places(routes) if at == directory})
        events: list[Event] = [ActivationRequested(path, "opencode", ids.TokenDigest(""))]
        events += [SessionAdmitted(f"s{number}", ids.token_digest(token(directory, number))) for number in sessions]
        events += [RouteMounted(f"skill{number}", f"mount{number:02}") for number in skills]
        yield ids.directory_stream(namespace, scope), [*events, Activated()]
        for number in skills:
            spec = SidecarSpec(
                f"skill{number}", f"mount{number:02}", path, path, path, "", approved=True, command=("true",)
            )
            stream = ids.sidecar_stream(namespace, scope, f"skill{number}")
            yield stream, [SpawnRequested(spec, 1), Started(birth), Healthy()]


def places(routes: int) -> Iterator[tuple[int, int, int]]:
    """Yield for each route its directory, session and skill."""
    for number in range(routes):
        directory, rest = divmod(number, SESSIONS * SKILLS)
        yield directory, *divmod(rest, SKILLS)


def token(directory: int, session: int) -> str:
    """Return the token of one session in one directory."""
    return f"{directory:016x}{session:016x}"


def paths(routes: int, count: int) -> list[str]:
    """Return `count` targets of requests, all different and all of one length, which lead to all routes in turn."""
    made = itertools.islice(itertools.cycle(list(places(routes))), count)
    return [
        f"/{token(directory, session)}/mount{skill:02}/{number:06}"
        for number, (directory, session, skill) in enumerate(made)
    ]


async def serve(recorder: Unrecorded) -> None:
    """Print the port, and serve until killed."""
    sock = listen.tcp("127.0.0.1", 0, "--port")
    listener = FacadeListener(sock, SlotLimits(CONNECTIONS_MAX, CONNECTIONS_MAX))
    async with trio.open_nursery() as nursery:
        await nursery.start(Facade(recorder, FacadeLimits()).serve, [listener])
        print(sock.getsockname()[1], flush=True)


def main(port: str, routes: str = "", path: str = "") -> None:
    """Serve."""
    gc.set_threshold(GC_OBJECTS)  # as every omac has it
    if routes:
        recorder = projected(int(port), open_journal(path, "bench", time.time_ns), int(routes))
    else:
        recorder = fixed(int(port))
    trio.run(serve, recorder)


if __name__ == "__main__":
    main(*sys.argv[1:])
