"""The port between the facade and the journal: may this request go to that skill, and what became of it."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute


class Request(msgspec.Struct, frozen=True):
    """What is recorded of a request: `path` is below the mount, without query and without token."""

    method: str
    path: str


class Answer(msgspec.Struct, frozen=True):
    """What became of a forwarded request: bodies in bytes, duration in microseconds; `status` None: none was sent."""

    status: int | None
    bytes_in: int
    bytes_out: int
    duration_us: int


class AccessRecorder(Protocol):
    """What the facade asks before it forwards a byte, and what it must say afterwards."""

    def knows(self, token: str) -> bool:
        """Whether this is a living token."""

    def resolve(self, token: str | None, mount: str) -> ResolvedRoute:
        """Where `/<token>/<mount>/` leads right now. None: `/<mount>/` on the socket of a run with one directory.
        Raises Refusal: unknown-mount, pending-credentials, skill-broken, sidecar-down, stopping."""

    async def admit(self, route: ResolvedRoute, request: Request) -> int:
        """Record that it is about to be forwarded; return its position once that is durable. Raises Refusal.

        Cancelled, it is aborted should the record become durable after all.
        """

    def admit_then(self, route: ResolvedRoute, request: Request, answered: Callable[[int | Exception], None]) -> object:
        """The same without waiting: `answered` is called once, with the position or the Refusal, and must not fail.
        Raises Refusal for what can be said at once. Who does not wait any more has to abort it."""

    def watch(self, route: ResolvedRoute, cut: Callable[[Refusal], None]) -> None:
        """Have `cut` called as soon as the route ends, because its token dies or it is not mounted any more, until
        `unwatch`.

        It is called at once if that is so already, and gets the reason: revoked, or stopping. It must not fail.
        """

    def unwatch(self, cut: Callable[[Refusal], None]) -> None:
        """Have `cut` called no more. May be called twice."""

    def stopped(self, route: ResolvedRoute) -> Refusal | None:
        """Return what a call is refused with that failed because omac stops the sidecar; None: omac does not."""

    def completed(self, access: int, answer: Answer) -> None:
        """The answer of the skill was relayed to its end. Kept until recorded; never raises."""

    def aborted(self, access: int, answer: Answer, reason: str) -> None:
        """It ended early: client-gone, client-timeout, bad-request, body-too-large, sidecar-down, timeout,
        upstream-error, revoked, stopping."""

    async def refused(self, token: str | None, mount: str, request: Request, status: int, reason: str) -> None:
        """Record a request that was not forwarded; `token` as in `resolve`, "" where there was none. Raises Refusal
        when the journal cannot be written."""
