"""The control plane's endpoints: requests in, use cases called, contract JSON out. Authority is decided in `guard`."""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from omac.adapters.control.contract import ROOT, SCOPE_LISTENER, refusal_body
from omac.adapters.control.late import ControlUseCases
from omac.domain.access.control import Listener
from omac.domain.kernel import ids
from omac.domain.kernel.refusal import Reason, Refusal
from omac.domain.kernel.undecodable import UNDECODABLE
from omac.domain.skills.values import shown
from omac.services.access.receiving import Delivery, Receiving
from omac.services.directories.control_call import Caller
from omac.services.directories.locking import StoreLocking
from omac.services.directories.manifest import as_compat
from omac.services.directories.requests import Directories
from omac.services.guard.claims import DenialClaim, DenialClaims
from omac.services.ports import VaultKeys

_log = logging.getLogger("omac.control")


def control_app(use_cases: ControlUseCases) -> QuartTrio:
    """Return the application."""
    # Quart would serve files of the folder that omac was started in, and fail where that is gone.
    app = QuartTrio("omac.control", static_folder=None, root_path=os.path.dirname(__file__))
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # OPTIONS is refused like every other method that is not offered
    directories, correlate = use_cases.directories, use_cases.correlate
    _add_calls(app, directories, correlate, bridge_compat=use_cases.bridge_compat)
    if use_cases.bridge_compat:
        _add_session(app)
    _add_claims(app, use_cases.claims, correlate)
    _add_witness(app, use_cases.receiving, correlate)
    _add_locking(app, use_cases.locking, correlate, use_cases.keys)
    _add_readings(app, directories, use_cases.status)
    _add_refusals(app)
    return app


def _add_calls(app: QuartTrio, directories: Directories, correlate: Callable[[], str], *, bridge_compat: bool) -> None:
    async def call(member: str) -> tuple[str, Any, Caller]:
        directory, argument = _arguments(await _body(), member)
        return directory, argument, Caller(_listener(), correlate())

    @app.post(ROOT + "activate")
    async def activate() -> Response:
        directory, session, caller = await call("session")
        manifest = await directories.activate(directory, caller, session)
        return _json(as_compat(manifest) if bridge_compat and caller.listener == "bridge" else manifest)

    @app.post(ROOT + "deactivate")
    async def deactivate() -> Response:
        directory, session, caller = await call("session")
        if session is not None:
            done = await directories.end_session(directory, session, caller)
            state = "session-ended" if done.recorded else "session-ending"
            return _json({"dir": done.dir, "session": session, "status": state})
        done = await directories.deactivate(directory, caller, by_bridge=bridge_compat)
        return _json({"dir": done.dir, "status": "deactivated" if done.recorded else "deactivating"})

    @app.post(ROOT + "reload")
    async def reload() -> Response:
        directory, restarts, caller = await call("restart")
        if directory == ids.SHARED:
            return _json(await directories.reload_shared(caller, restarts or ()))
        return _json(await directories.reload(directory, caller, restarts or ()))


def _add_session(app: QuartTrio) -> None:
    @app.post(ROOT + "session")
    async def session() -> Response:
        return _json({"ok": True})  # its activation names a session; a bridge of the Go omac reports it here, too


def _add_claims(app: QuartTrio, claims: DenialClaims, correlate: Callable[[], str]) -> None:
    @app.post(ROOT + "denied")
    async def denied() -> Response:
        try:
            claimed = msgspec.json.decode(await _body(), type=DenialClaim)
        except UNDECODABLE as broken:
            raise Refusal("bad-request", f"bad json body: {broken}") from broken
        await claims.record(claimed, correlate())
        return _json({"ok": True})


def _add_witness(app: QuartTrio, receiving: Receiving, correlate: Callable[[], str]) -> None:
    @app.post(ROOT + "witness")
    async def witness() -> Response:
        try:
            delivery = msgspec.json.decode(await _body(), type=Delivery)
        except UNDECODABLE as broken:
            raise Refusal("bad-request", f"bad json body: {broken}") from broken
        return _json(await receiving.receive(delivery, correlate()))


def _add_locking(app: QuartTrio, locking: StoreLocking, correlate: Callable[[], str], keys: VaultKeys) -> None:
    @app.post(ROOT + "unlock")
    async def unlock() -> Response:
        caller = Caller(_listener(), correlate())
        if caller.listener != "socket":  # a key is taken from the person only
            raise Refusal("unauthorized", "only the private socket may unlock a store", fix=["omac unlock"])
        key, renews = _vault_key(await _body())

        def open_store() -> None:
            if key is not None:
                keys.renew_vault_key(key) if renews else keys.give_vault_key(key)

        return _json({"dirs": await locking.unlock(caller, open_store)})

    @app.post(ROOT + "lock")
    async def lock() -> Response:
        caller = Caller(_listener(), correlate())
        if caller.listener != "socket":
            raise Refusal("unauthorized", "only the private socket may lock a store", fix=["omac vault lock"])
        was_open = await locking.lock(caller, keys.forget_vault_key)
        return _json({"forgotten": was_open, "opened_by": keys.opened_by()})


def _add_readings(app: QuartTrio, directories: Directories, status: Callable[[Listener], Awaitable[object]]) -> None:
    @app.get(ROOT + "dirs")
    async def dirs() -> Response:
        return _json({"dirs": directories.listing()})

    @app.get(ROOT + "global")
    async def global_skills() -> Response:
        return _json({"skills": directories.global_skills()})

    @app.get(ROOT + "status")
    async def projected() -> Response:
        return _json(await status(_listener()))


def _add_refusals(app: QuartTrio) -> None:
    @app.errorhandler(Refusal)
    async def refused(refusal: Refusal) -> Response:
        return refusal_response(refusal)

    @app.errorhandler(HTTPException)
    async def unroutable(problem: HTTPException) -> Response:
        reasons: dict[int, Reason] = {404: "not-found", 405: "method-not-allowed", 413: "body-too-large"}
        reason: Reason = reasons.get(problem.code or 0, "bad-request")
        text, allow = problem.description, {}
        if isinstance(problem, MethodNotAllowed) and problem.valid_methods:
            only = [method for method in ("GET", "POST") if method in problem.valid_methods]
            text, allow = f"{', '.join(only)} only", {"Allow": ", ".join(only)}
        return refusal_response(Refusal(reason, str(text)), allow)

    @app.errorhandler(Exception)
    async def unexpected(_problem: Exception) -> Response:
        _log.exception("%s %s failed", request.method, request.path)
        answer = {"error": "omac failed; what it wrote to stderr says how", "reason": "internal", "fix": []}
        return _json(answer, 500, {"X-Omac-Reason": "internal"})


def _listener() -> Listener:
    """Return the listener by which the present request came in."""
    scope: Mapping[str, Any] = dict(request.scope)
    listener: Listener = scope[SCOPE_LISTENER]
    return listener


async def _body() -> bytes:
    body = await request.get_data()
    assert isinstance(body, bytes), "as text only when asked for"
    return body


def refusal_response(refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response:
    return _json(refusal_body(refusal), refusal.status, {"X-Omac-Reason": refusal.reason, **(headers or {})})


ARGUMENTS: dict[str, tuple[Any, str]] = {"session": (str, "a string"), "restart": (list[str], "an array of strings")}


def _arguments(body: bytes, member: str) -> tuple[str, Any]:
    """The directory that a body names, and its `member`, one of ARGUMENTS; None where it has none. Raises Refusal:
    bad-request, also for any other member: it was meant to say something, and would go unheard."""
    try:
        document = msgspec.json.decode(body)
    except UNDECODABLE as broken:
        raise Refusal("bad-request", f"bad json body: {broken}") from broken
    directory = document.get("dir") if isinstance(document, dict) else None
    if isinstance(document, dict):
        _require_known(document, ("dir", member))
    if not isinstance(directory, str) or not directory:
        raise Refusal("bad-request", "missing 'dir'")
    kind, expected = ARGUMENTS[member]
    try:
        return directory, msgspec.convert(document.get(member), kind | None)
    except msgspec.ValidationError:
        raise Refusal("bad-request", f"{member!r} must be {expected}") from None


def _require_known(document: Mapping[str, object], members: Sequence[str]) -> None:
    unknown = next((name for name in document if name not in members), None)
    if unknown is not None:
        known = ", ".join(map(repr, members))
        raise Refusal("bad-request", f"unknown member {shown(unknown)}; this call takes {known}")


class _Unlock(msgspec.Struct, forbid_unknown_fields=True):
    key: str | None = None
    renews: bool = False

    def __repr__(self) -> str:
        return "_Unlock(<hidden>)"


def _vault_key(body: bytes) -> tuple[bytes | None, bool]:
    """The key in `{"key": "64 hex digits"}`, or None, and whether it only replaces one that was given (`renews`). What
    is wrong with it is not repeated: it may be a key."""
    try:
        document = msgspec.json.decode(body, type=_Unlock)
        return bytes.fromhex(document.key) if document.key is not None else None, document.renews
    except (*UNDECODABLE, ValueError):
        raise Refusal("bad-request", "bad json body: this call takes 'key', 'renews' and nothing else") from None


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, mimetype="application/json")
