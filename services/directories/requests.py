"""Directories: what drivers may ask for. Activate, deactivate and reload a directory, and read its manifest.

Routing tokens are minted here and live in memory only; the journal and the projections know their digests.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import trio

from omac.domain.access import control
from omac.domain.access.control import Action
from omac.domain.directories import directory
from omac.domain.directories.directory import Directory
from omac.domain.directories.events import (
    ActivationFailed,
    ActivationRequested,
    DeactivationRequested,
    SessionAdmitted,
    SessionEnded,
)
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Event, Recorded
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal, quoted, stopping
from omac.domain.kernel.terminal_escaping import printable
from omac.services.directories.control_call import Caller, ControlCall
from omac.services.directories.manifest import Manifest, Reach, described, manifest_of, shared_skills
from omac.services.kernel.engine import Engine
from omac.services.kernel.refusals import Refusals
from omac.services.ports import SkillFolders

_log = logging.getLogger("omac.directories")

SESSION_MAX = 200  # characters of a session's name
ANSWER_S = 3.0  # for the skills of a directory to become ready before its manifest is answered
SHARED_S = 1.0  # for those that all directories share, on top
RECORD_S = 2.0  # for the journal to take a deactivation, which holds at once, before it is answered
OFFLINE_S = 15.0  # for what runs in a directory to end before its deactivation is answered
ONLINE_MAX = 256  # directories that bridges bring online at one time: an agent makes as many as it likes


class Deactivation(NamedTuple):
    """A directory, or a session of it, that leads nowhere any more; not `recorded`: the journal is away, or its end
    takes its time."""

    dir: str
    recorded: bool


@dataclass(eq=False, repr=False)
class Directories:
    """Use cases of one server. `mint` gives a fresh routing token: 128 random bits in hex. `only` is the one directory
    that bridges activate, where it is stated: others below it, such as its worktrees, have skills of their own."""

    _engine: Engine
    _folders: SkillFolders
    _harness: str
    _roots: Sequence[str]
    _reach: Reach
    _mint: Callable[[], str]
    _refusals: Refusals
    _only: str = ""
    _minted: dict[TokenDigest, str] = field(default_factory=dict, init=False)  # on their way to the journal
    _tokens: dict[TokenDigest, str] = field(default_factory=dict, init=False)  # living
    _stopping: bool = field(default=False, init=False)

    async def activate(self, path: str, caller: Caller, session: str | None = None) -> Manifest:
        """Bring a directory online, or find it online, and return its manifest.

        Callers for one directory share one activation. Raises Refusal: bad-request, directory-missing,
        not-a-directory, outside-roots, activation-failed, directory-offline (taken offline meanwhile).
        """
        async with self._call("activate", path, caller) as call:
            if session is not None:
                self._check_session(session, caller)
            canonical = await self._folders.canonical(path, self._roots)
            stream = self._stream(canonical)
            if caller.listener == "bridge":
                self._check_bridge(canonical)
            is_fresh = await self._bring_online(stream, canonical, call)
            if not is_fresh and caller.listener != "bridge" and await _is_outdated(self._state(stream), self._folders):
                await self._request_reload(stream, canonical, call)
            if stream in self._engine.revoked:
                raise _still_going(canonical)
            with trio.move_on_after(ANSWER_S):  # a slow skill keeps no token from its caller, its state says so
                await self._settled(stream)
            with trio.move_on_after(SHARED_S):
                await self._shared_settled()
            if session is not None:
                await self._grant(stream, partial(directory.AdmitSession, session), canonical, call)
            return self._manifest(self._state(stream), session, caller)

    def _call(self, action: Action, path: str, caller: Caller) -> ControlCall:
        return ControlCall(self._engine, self._refusals, action, path, caller, lambda: self._stopping)

    async def _bring_online(self, stream: StreamId, canonical: str, call: ControlCall) -> bool:
        """Request the activation of a directory that is offline; whether it was. Raises Refusal."""
        was_offline = False
        while (status := self._state(stream).status) in ("offline", "deactivating"):
            if self._stopping:
                raise stopping()
            was_offline = True
            if status == "deactivating":
                with trio.move_on_after(OFFLINE_S) as waited:
                    await self._engine.until([stream], lambda: self._state(stream).status != "deactivating")
                if waited.cancelled_caught:
                    raise _still_going(canonical)
            else:
                await self._grant(
                    stream, partial(directory.RequestActivation, canonical, self._harness), canonical, call
                )
        return was_offline

    def _check_bridge(self, canonical: str) -> None:
        """Raise Refusal for a directory that an agent's bridge may not bring online."""
        if self._only and canonical != self._only:
            message = f"{canonical} is not {self._only}, which this omac start is for"
            raise Refusal("outside-roots", message, fix=[f"omac start --workdir {quoted(canonical)}"])
        if self._state(self._stream(canonical)).status == "offline" and len(self._online()) >= ONLINE_MAX:
            message = f"{ONLINE_MAX} directories are online, and a bridge activates no more"
            raise Refusal("forbidden", message, fix=["omac status", "omac deactivate DIR"])

    def _check_session(self, session: str, caller: Caller) -> None:
        visible = session == printable(session) and session.strip()
        if not (0 < len(session) <= SESSION_MAX and visible):
            raise Refusal("bad-request", f"a session's name is 1 to {SESSION_MAX} printable characters")
        if session == control.PERSON and caller.listener == "bridge":
            raise Refusal("forbidden", f"the session {session!r} is the person's; name one of the agent's own")
        if self._engine.scrubbed(session, SESSION_MAX) != session:
            raise Refusal("bad-request", "a session's name holds a routing token; choose another name")

    async def deactivate(self, path: str, caller: Caller, *, by_bridge: bool = False) -> Deactivation:
        """Take a directory offline, at once, and record it as soon as the journal takes it. One that is not online
        stays so. `by_bridge`: an agent's bridge may do so, too."""
        async with self._call("deactivate", path, caller) as call:
            if caller.listener == "bridge" and not by_bridge:
                raise Refusal("forbidden", "an agent's bridge may end a session, and no directory: name the session")
            canonical = path  # what is online goes offline by that name, whatever an agent has put in its place
            if self._state(self._stream(path)).status == "offline":
                canonical = await self._folders.canonical(path, self._roots)
            stream = self._stream(canonical)
            command = directory.RequestDeactivation("asked for")
            beside = call.granted(canonical)
            recorded = self._engine.revoke(directory.AGGREGATE, stream, command, call.cause(), beside=beside)
            with trio.move_on_after(RECORD_S):
                await recorded.wait()
            if recorded.is_set():
                with trio.move_on_after(OFFLINE_S):
                    await self._offline(stream)
            return Deactivation(canonical, recorded=self._state(stream).status == "offline")

    async def end_session(self, path: str, session: str, caller: Caller) -> Deactivation:
        """Let the token of one session lead nowhere, at once; the directory and other sessions stay. One that is not
        known stays so."""
        async with self._call("deactivate", path, caller) as call:
            self._check_session(session, caller)
            canonical = path
            if self._state(self._stream(path)).status == "offline":
                canonical = await self._folders.canonical(path, self._roots)
            stream = self._stream(canonical)
            digest = self._held(self._state(stream), session)
            if digest is None:
                return Deactivation(canonical, recorded=True)
            command, beside = directory.EndSession(session), call.granted(canonical, session)
            ended = self._engine.revoke(directory.AGGREGATE, stream, command, call.cause(), token=digest, beside=beside)
            with trio.move_on_after(RECORD_S):
                await ended.wait()
            return Deactivation(canonical, recorded=self._held(self._state(stream), session) != digest)

    async def reload_shared(self, caller: Caller, restarts: Sequence[str] = ()) -> dict[str, Any]:
        """Look at the skills that all directories share again, and restart the sidecars of some. Raises Refusal:
        directory-offline (there are none), not-found (nor is there one to restart)."""
        async with self._call("reload", "", caller) as call:
            stream = ids.directory_stream(self._engine.namespace, ids.GLOBAL)
            await self._shared_settled()
            if not self._state(stream).reachable:
                raise Refusal("directory-offline", "no global skill exists, or none is discovered yet")
            await self._request_reload(stream, "", call, restarts)
            await self._shared_settled()
            return {"dir": "", "state": self._state(stream).status, "skills": self.global_skills()}

    async def reload(self, path: str, caller: Caller, restarts: Sequence[str] = ()) -> Manifest:
        """Look at a directory's skills again, and restart the sidecars of some; its tokens stay. One that is offline is
        activated. Raises Refusal, as `activate`, and not-found: there is no sidecar to restart."""
        async with self._call("reload", path, caller) as call:
            canonical = await self._folders.canonical(path, self._roots)
            stream = self._stream(canonical)
            is_fresh = await self._bring_online(stream, canonical, call)
            before = self._state(stream).generation
            await self._activated(stream, before)  # it may have looked before the change that is meant
            if restarts or (self._state(stream).generation == before and not is_fresh):
                await self._request_reload(stream, canonical, call, restarts)
            await self._settled(stream)
            return self._manifest(self._state(stream), None, caller)

    async def _request_reload(
        self, stream: StreamId, canonical: str, call: ControlCall, restarts: Sequence[str] = ()
    ) -> None:
        command, beside = directory.RequestReload(canonical, tuple(restarts)), call.granted(canonical)
        while not await self._execute(stream, command, call.cause(), beside=beside) and restarts:
            await self._activated(stream, self._state(stream).generation)  # a reload that restarts others is under way

    async def deactivate_all(self, why: str) -> None:
        """Take every directory of this run offline; one whose end cannot be recorded is left to the next start.

        From here on nothing is brought online; callers that wait for that are refused (stopping).
        """
        self._stopping = True
        failed: set[StreamId] = set()
        while ending := [stream for stream in self._online() if stream not in failed]:  # one may begin meanwhile
            for stream in ending:
                try:
                    await self._execute(stream, directory.RequestDeactivation(why), None)
                except Refusal as refusal:
                    failed.add(stream)
                    _log.error("%s: %s", self._state(stream).path, refusal.message)
            for stream in ending:
                if stream not in failed:
                    await self._offline(stream)

    def _online(self) -> list[StreamId]:
        """The directories of this run that are not offline."""
        entries = self._engine.system.directories.entries.items()
        return [s for s, entry in entries if entry.run == self._engine.run and entry.state.status != "offline"]

    def listing(self) -> list[dict[str, str]]:
        """Directories of this run that are not offline, with their states; tokens are withheld."""
        return [
            {"dir": entry.state.path, "state": entry.state.status}
            for stream, entry in sorted(self._engine.system.directories.entries.items())
            if entry.state.path
            and entry.state.status != "offline"
            and ids.key_of(stream).namespace == self._engine.namespace
        ]

    def global_skills(self) -> list[dict[str, Any]]:
        """Skills shared by all directories; without URLs, which need the token of a directory."""
        skills = shared_skills(self._engine.system, self._engine.namespace)
        return [described(skill, None, self._reach) for skill in skills]

    def _stream(self, canonical: str) -> StreamId:
        return ids.directory_stream(self._engine.namespace, ids.workdir_id(canonical))

    def _state(self, stream: StreamId) -> Directory:
        return self._engine.system.directories[stream].state

    async def _execute(
        self,
        stream: StreamId,
        command: directory.Command,
        cause: Cause | None,
        beside: Sequence[Addressed[None, Event]] = (),
    ) -> Sequence[Recorded]:
        return await self._engine.execute(directory.AGGREGATE, stream, command, cause, beside=beside)

    async def _settled(self, stream: StreamId) -> None:
        """Wait until the activation is over. Raises Refusal when it failed or was called off."""
        generation = self._state(stream).generation
        while self._state(stream).status == "activating":
            generation = self._state(stream).generation
            await self._activated(stream, generation)
        state = self._state(stream)
        if not state.reachable:
            if state.failure and state.generation == generation:
                raise Refusal("activation-failed", f"{state.path} could not be activated: {state.failure}")
            raise _went_offline(state.path)

    async def _shared_settled(self) -> None:
        stream = ids.directory_stream(self._engine.namespace, ids.GLOBAL)
        await self._engine.until([stream], lambda: self._state(stream).status != "activating")

    async def _activated(self, stream: StreamId, generation: int) -> None:
        """Wait until the activation of this generation is over."""

        def is_over() -> bool:
            state = self._state(stream)
            return state.status != "activating" or state.generation != generation

        await self._engine.until([stream], is_over)

    async def _offline(self, stream: StreamId) -> None:
        generation = self._state(stream).generation

        def is_over() -> bool:
            state = self._state(stream)
            return state.status == "offline" or state.generation != generation

        await self._engine.until([stream], is_over)

    async def _grant(
        self, stream: StreamId, command: Callable[[TokenDigest], directory.Command], path: str, call: ControlCall
    ) -> None:
        """Carry out a command that takes a fresh token's digest; the token is forgotten when it was not needed."""
        token = self._mint()
        digest = ids.token_digest(token)
        self._minted[digest] = token
        try:
            await self._execute(stream, command(digest), call.cause(), beside=call.granted(path))
        finally:
            del self._minted[digest]

    def notice(self, recorded: Recorded) -> None:
        """Keep the tokens that live: others may read the manifest as soon as a grant is folded."""
        match recorded.event:
            case ActivationRequested(_, _, digest) | SessionAdmitted(_, digest) if digest in self._minted:
                self._tokens[digest] = self._minted[digest]
            case SessionEnded(_, digest):
                self._tokens.pop(digest, None)
            case DeactivationRequested() | ActivationFailed():
                living = self._engine.system.tokens.streams
                self._tokens = {digest: token for digest, token in self._tokens.items() if digest in living}
            case _:
                pass

    def _held(self, state: Directory, session: str | None) -> TokenDigest | None:
        """The token of a session; None: it has none."""
        return next((digest for digest, holder in state.tokens.items() if holder == session), None)

    def _manifest(self, state: Directory, session: str | None, caller: Caller) -> Manifest:
        digest = self._held(state, session)
        if digest is not None and digest in self._engine.revoked:
            raise _still_going(f"{state.path} for session {session!r}")
        if digest is None:
            raise _went_offline(state.path)
        reach = self._reach.seen_by(caller.listener)
        return manifest_of(self._engine.system, self._engine.namespace, state, self._tokens[digest], reach)


def _went_offline(path: str) -> Refusal:
    fix = [f"omac activate {quoted(path)}"]
    return Refusal("directory-offline", f"{path} was taken offline meanwhile", fix=fix)


def _still_going(path: str) -> Refusal:
    message = f"{path} is being taken offline, and that is not recorded yet; try again"
    return Refusal("directory-offline", message, fix=["omac status", "omac journal path  # is its disk slow, or full?"])


async def _is_outdated(directory: Directory, folders: SkillFolders) -> bool:
    """Return whether a skill is refused for code that is no longer in its folder."""
    for name, route in directory.routes.items():
        if route.why == "skill-broken" and (skill := directory.skills.get(name)) is not None:
            try:
                if await folders.bundle_hash(skill.source) != skill.bundle_hash:
                    return True
            except OSError:
                return True
    return False
