"""The port between the facade and the journal: may this request go to that skill, and what became of it."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute

CallSoon = Callable[[Callable[[], None]], None]  # has something happen in the loop; any thread may call it


class Request(msgspec.Struct, frozen=True):
    """The recorded part of a request: `path` is below the mount, without query and without token."""

    method: str
    path: str


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a forwarded request: bodies in bytes, duration in microseconds; `status` None: no answer was
    sent."""

    status: int | None
    bytes_in: int
    bytes_out: int
    duration_us: int


class AccessRecorder(Protocol):
    """The questions of the facade before it forwards a byte, and its reports afterwards."""

    def knows(self, token: str) -> bool:
        """Return whether this token is valid now."""

    def resolve(self, token: str | None, mount: str) -> ResolvedRoute:
        """Return the route of `/<token>/<mount>/` as it is now. `token` None: `/<mount>/` on the socket of a run with
        one directory. Raises Refusal: unknown-mount, pending-credentials, skill-broken, sidecar-down, revoked,
        too-many-calls, stopping."""

    async def admit(self, route: ResolvedRoute, request: Request) -> int:
        """Record that it is about to be forwarded; return the id of the access once that is durable. Raises Refusal.

        Cancelled, it is aborted should the record become durable after all.
        """

    def admit_then(self, route: ResolvedRoute, request: Request, answered: Callable[[int | Exception], None]) -> object:
        """Record a request as `admit` does, without waiting. `answered` is called once, with the id or the
        Refusal, and must not fail. Raises Refusal for a problem that is known at once. A caller that no longer waits
        must abort the access."""

    def answer_by(self, call_soon: CallSoon | None) -> None:
        """Have `call_soon` bring the journal's answers into the loop, which is faster than Trio is; None: Trio again.
        What it brought and the loop has not called yet is called now."""

    def watch(self, route: ResolvedRoute, cut: Callable[[Refusal], None]) -> None:
        """Have `cut` called as soon as the route ends, because its token dies, its skill's approval is revoked or
        it is not mounted any more, until `unwatch`.

        It is called at once if that is so already, and gets the reason: revoked, or stopping. It must not fail.
        """

    def unwatch(self, cut: Callable[[Refusal], None]) -> None:
        """Have `cut` called no more. May be called twice."""

    def stopped(self, route: ResolvedRoute) -> Refusal | None:
        """Return what a call is refused with that failed because its route has ended, or omac stops the sidecar; None:
        neither is so."""

    def completed(self, access: int, answer: Answer) -> None:
        """The answer of the skill was relayed to its end. Kept until recorded; never raises."""

    def aborted(self, access: int, answer: Answer, reason: str) -> None:
        """Record that the access ended early: client-gone, client-timeout, bad-request, body-too-large, sidecar-down,
        timeout, upstream-error, revoked, stopping."""

    async def refused(self, token: str | None, mount: str, request: Request, status: int, reason: str) -> None:
        """Record a request that was not forwarded; `token` as in `resolve`, "" where there was none. Raises Refusal
        when the journal cannot be written."""
