"""Directories: what drivers may ask for. Activate, deactivate and reload a directory, and read its manifest.

Routing tokens are minted here and live in memory only; the journal and the projections know their digests.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from omac.domain import directory, ids
from omac.domain.control import Action, ControlCalled, ControlRefused, Listener
from omac.domain.directory import (
    ActivationFailed,
    ActivationRequested,
    DeactivationRequested,
    Directory,
    SessionAdmitted,
)
from omac.domain.ids import StreamId, TokenDigest
from omac.domain.recorded import Cause, Draft, Recorded
from omac.domain.refusal import Refusal
from omac.projections.status import SkillStatus, skills_of
from omac.services.engine import Engine
from omac.services.ports import SkillFolders

_log = logging.getLogger("omac.directories")

SESSION_MAX = 200  # characters of a session's name
DIRECTORY_MAX = 1_024  # characters of a refused directory that are recorded


class Caller(msgspec.Struct, frozen=True):
    """Who asks: by which listener, and the id that ties together what follows from it."""

    listener: Listener
    correlation: str


class Reach(msgspec.Struct, frozen=True):
    """Where the facade listens: `base` is "http://127.0.0.1:PORT", `socket` the path of its Unix socket."""

    base: str
    socket: str


class Manifest(msgspec.Struct, frozen=True):
    """A directory as its bridge sees it: each skill with its URLs, and variables for the agent's shell."""

    dir: str
    dir_token: str
    state: str
    skills: list[dict[str, Any]]  # the contract's skill objects: keys that do not apply are left out
    env: dict[str, str]


class Directories:
    """Use cases of one server. `mint` gives a fresh routing token: 128 random bits in hex."""

    def __init__(
        self,
        engine: Engine,
        folders: SkillFolders,
        harness: str,
        roots: Sequence[str],
        reach: Reach,
        mint: Callable[[], str],
    ) -> None:
        self._engine = engine
        self._folders = folders
        self._harness = harness
        self._roots = tuple(roots)
        self._reach = reach
        self._mint = mint
        self._minted: dict[TokenDigest, str] = {}  # on their way to the journal
        self._tokens: dict[TokenDigest, str] = {}  # living
        engine.observe(self._follow_tokens)

    async def activate(self, path: str, caller: Caller, session: str | None = None) -> Manifest:
        """Bring a directory online, or find it online, and return its manifest.

        Callers for one directory share one activation. Raises Refusal: bad-request, directory-missing,
        not-a-directory, outside-roots, activation-failed, directory-offline (taken offline meanwhile).
        """
        async with _Refusals(self, "activate", path, caller) as call:
            _check_session(session)
            canonical = await self._folders.canonical(path, self._roots)
            stream = self._stream(canonical)
            while (status := self._state(stream).status) in ("offline", "deactivating"):
                if status == "deactivating":
                    await self._engine.moved([stream])
                else:
                    await self._grant(
                        stream, partial(directory.RequestActivation, canonical, self._harness), canonical, call
                    )
            await self._settled(stream, self._state(stream).generation)
            if session is not None:
                await self._grant(stream, partial(directory.AdmitSession, session), canonical, call)
            return self._manifest(self._state(stream), session)
        raise AssertionError("the block returned or raised")

    async def deactivate(self, path: str, caller: Caller) -> str:
        """Take a directory offline; return its canonical path. One that is not online stays so."""
        async with _Refusals(self, "deactivate", path, caller) as call:
            canonical = path  # what is online goes offline by that name, whatever an agent has put in its place
            if self._state(self._stream(path)).status == "offline":
                canonical = await self._folders.canonical(path, self._roots)
            stream = self._stream(canonical)
            command = directory.RequestDeactivation("asked for")
            await self._execute(stream, command, call.cause(), beside=call.granted(canonical))
            await self._offline(stream)
            return canonical
        raise AssertionError("the block returned or raised")

    async def reload(self, path: str, caller: Caller) -> Manifest:
        """Look at a directory's skills again; its tokens stay. Raises Refusal (directory-offline) when it is not up."""
        async with _Refusals(self, "reload", path, caller) as call:
            canonical = await self._folders.canonical(path, self._roots)
            stream = self._stream(canonical)
            before = self._state(stream).generation
            while self._state(stream).status == "activating" and self._state(stream).generation == before:
                await self._engine.moved([stream])  # it may have looked before the change that is meant
            if self._state(stream).generation == before:
                await self._execute(
                    stream, directory.RequestReload(canonical), call.cause(), beside=call.granted(canonical)
                )
            await self._settled(stream, self._state(stream).generation)
            return self._manifest(self._state(stream), None)
        raise AssertionError("the block returned or raised")

    async def deactivate_all(self, why: str) -> None:
        """Take every directory of this run offline; one whose end cannot be recorded is left to the next start."""
        mine = [s for s, e in self._engine.system.directories.entries.items() if e.run == self._engine.run]
        ending = []
        for stream in mine:
            try:
                await self._execute(stream, directory.RequestDeactivation(why), None)
                ending.append(stream)
            except Refusal as refusal:
                _log.error("%s: %s", self._state(stream).path, refusal.message)
        for stream in ending:
            await self._offline(stream)

    def listing(self) -> list[dict[str, str]]:
        """Directories of this host that are not offline, with their states; tokens are withheld."""
        return [
            {"dir": entry.state.path, "state": entry.state.status}
            for stream, entry in sorted(self._engine.system.directories.entries.items())
            if entry.state.status != "offline" and stream.split("/")[1] == self._engine.host
        ]

    def global_skills(self) -> list[dict[str, Any]]:
        """Skills shared by all directories. None are discovered yet: every skill belongs to its directory."""
        return []

    def _stream(self, canonical: str) -> StreamId:
        return ids.directory_stream(self._engine.host, ids.workdir_id(canonical))

    def _state(self, stream: StreamId) -> Directory:
        return self._engine.system.directories[stream].state

    async def _execute(
        self, stream: StreamId, command: directory.Command, cause: Cause | None, beside: Sequence[Draft] = ()
    ) -> Sequence[Recorded]:
        decide = partial(directory.decide, command)
        return await self._engine.execute(self._engine.system.directories, stream, decide, cause, beside)

    async def _settled(self, stream: StreamId, generation: int) -> None:
        """Wait until this activation is over. Raises Refusal when it failed or was called off."""
        while (state := self._state(stream)).status == "activating":
            generation = state.generation
            await self._engine.moved([stream])
        if not state.reachable:
            if state.failure and state.generation == generation:
                raise Refusal("activation-failed", f"{state.path} could not be activated: {state.failure}")
            raise Refusal("directory-offline", f"{state.path} was taken offline meanwhile")

    async def _offline(self, stream: StreamId) -> None:
        generation = self._state(stream).generation
        while (state := self._state(stream)).status != "offline" and state.generation == generation:
            await self._engine.moved([stream])

    async def _grant(
        self, stream: StreamId, command: Callable[[TokenDigest], directory.Command], path: str, call: "_Refusals"
    ) -> None:
        """Carry out a command that takes a fresh token's digest; the token is forgotten when it was not needed."""
        token = self._mint()
        digest = ids.token_digest(token)
        self._minted[digest] = token
        try:
            await self._execute(stream, command(digest), call.cause(), beside=call.granted(path))
        finally:
            del self._minted[digest]

    def _follow_tokens(self, recorded: Recorded) -> None:
        """Keep the tokens that live: others may read the manifest as soon as a grant is folded."""
        match recorded.event:
            case ActivationRequested(_, _, digest) | SessionAdmitted(_, digest) if digest in self._minted:
                self._tokens[digest] = self._minted[digest]
            case DeactivationRequested() | ActivationFailed():
                living = self._engine.system.tokens.streams
                self._tokens = {digest: token for digest, token in self._tokens.items() if digest in living}
            case _:
                pass

    def _manifest(self, state: Directory, session: str | None) -> Manifest:
        digest = next((digest for digest, holder in state.tokens.items() if holder == session), None)
        if digest is None:
            raise Refusal("directory-offline", f"{state.path} was taken offline meanwhile")
        token = self._tokens[digest]
        skills = skills_of(self._engine.system, self._engine.host, state)
        env = {"OMAC_SKILLS": ",".join(skill.mount for skill in skills if skill.state == "ready")}
        for skill in skills:
            if skill.mount:
                name = skill.mount.upper().replace("-", "_")
                env[f"OMAC_{name}_BASE"] = f"{self._reach.base}/{token}/{skill.mount}"
                env[f"OMAC_D_{token.upper()}_{name}_BASE"] = f"{self._reach.base}/{token}/{skill.mount}"
        return Manifest(state.path, token, state.status, [self._skill(skill, token) for skill in skills], env)

    def _skill(self, skill: SkillStatus, token: str) -> dict[str, Any]:
        told: dict[str, Any] = {
            "name": skill.name,
            "scope": skill.scope,
            "mount": skill.mount,
            "state": skill.state,
        }
        if skill.state in ("ready", "restarting"):
            socket = self._reach.socket.replace("%", "%25").replace("/", "%2F")
            told["base"] = f"{self._reach.base}/{token}/{skill.mount}"
            told["socket_base"] = f"http+unix://{socket}/{token}/{skill.mount}"
        if skill.state != "ready":
            told["missing"] = list(skill.missing)
            told["fix"] = list(skill.fix)
            told["detail"] = skill.detail
        return told


class _Refusals:
    """Around one control call: what is granted is recorded with its change, what is refused with its reason."""

    def __init__(self, directories: Directories, action: Action, path: str, caller: Caller) -> None:
        self._engine = directories._engine
        self._action: Action = action
        self._path = path
        self._caller = caller

    def cause(self) -> Cause:
        return Cause("bridge" if self._caller.listener == "tcp" else "person", self._caller.correlation)

    def granted(self, canonical: str) -> tuple[Draft, ...]:
        event = ControlCalled(self._action, canonical, self._caller.listener)
        return (Draft(ids.control_stream(self._engine.host), None, event),)

    async def __aenter__(self) -> "_Refusals":
        return self

    async def __aexit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Refusal):
            path = self._path[:DIRECTORY_MAX].encode("utf-8", "replace").decode()
            event = ControlRefused(self._action, path, self._caller.listener, error.reason)
            await self._engine.record_refusal(Draft(ids.control_stream(self._engine.host), None, event), self.cause())


def _check_session(session: str | None) -> None:
    if session is not None and not (0 < len(session) <= SESSION_MAX and session.isprintable()):
        raise Refusal("bad-request", f"a session's name is 1 to {SESSION_MAX} printable characters")
