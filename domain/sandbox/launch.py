"""A sandbox: one launch of a program in one, from the request to its end.

Rules

1. `launch-requested` is durable before the program's first instruction; what cannot be recorded is not launched.
2. A launch ends once: `exited`, with what the sweep found, or `denied`, where the program did not get to run.
3. A launch whose omac died with it is `lost`: a later omac records its end, without a status that nobody saw.
4. What was asked for is recorded redacted: a command line may hold secrets, the journal never does.
5. The program that launches reports into the spool and decides nothing: a report that cannot follow is refused when it
   is ingested, so a late one never contradicts what was recorded meanwhile.
"""

from typing import Literal

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal


class LaunchRequested(Event, frozen=True):
    """A program is about to be launched in `workdir`. `policy` is the SHA-256 of its policy, 64 hex digits.

    `pid`, `start_ticks` and `boot_id` identify the omac process that launches it beyond the reuse of its pid; `run` is
    the run it belongs to, empty for none.
    """

    workdir: str
    harness: str
    backend: str
    policy: str
    argv: tuple[str, ...]
    network: str
    pid: int
    start_ticks: int
    boot_id: str
    run: str = ""


class Launched(Event, frozen=True):
    """The program runs. `pid` is that of the first process inside, as the host counts."""

    pid: int


class LaunchExited(Event, frozen=True):
    """The launch ended. `status` is 0 to 255 (128 and the number of a signal). It is None for a launch that was lost;
    `lost` is then the reason.

    `findings` are what was found afterwards and, where dangerous, made harmless: a short text for each. `vanished` are
    paths that the program made in the sandbox's own home, which is gone with it. `workdir` is that of its launch.
    """

    status: int | None
    findings: tuple[str, ...] = ()
    lost: str = ""
    vanished: tuple[str, ...] = ()
    workdir: str = ""


class Denied(Event, frozen=True):
    """The launch was denied, for `reason`: the program was not launched, or was held back and never ran."""

    workdir: str
    harness: str
    argv: tuple[str, ...]
    reason: str
    message: str


EVENTS: tuple[type[Event], ...] = (LaunchRequested, Launched, LaunchExited, Denied)

Status = Literal["unknown", "requested", "launched", "exited", "denied"]


class Sandbox(msgspec.Struct, frozen=True):
    """A launch as the journal knows it. `pid` is that of the program, None until it is known."""

    status: Status = "unknown"
    launch: LaunchRequested | None = None
    pid: int | None = None

    @property
    def live(self) -> bool:
        """Return whether the end of the launch is still to be recorded."""
        return self.status in ("requested", "launched")

    @property
    def ended(self) -> bool:
        """Return whether no event can follow."""
        return self.status in ("exited", "denied")


TABLE: dict[tuple[Status, type[Event]], Status] = {
    ("unknown", LaunchRequested): "requested",
    ("unknown", Denied): "denied",
    ("requested", Launched): "launched",
    ("requested", LaunchExited): "exited",
    ("requested", Denied): "denied",
    ("launched", LaunchExited): "exited",
    ("launched", Denied): "denied",
}


def evolve(state: Sandbox, event: Event) -> Sandbox:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    status = TABLE[state.status, type(event)]
    match event:
        case LaunchRequested():
            return Sandbox(status, event)
        case Launched(pid):
            return Sandbox(status, state.launch, pid)
        case _:
            return Sandbox(status, state.launch, state.pid)


class Report(msgspec.Struct, frozen=True):
    """Command: the program that launches it says that this happened."""

    event: LaunchRequested | Launched | LaunchExited | Denied


class Lose(msgspec.Struct, frozen=True):
    """Command: its omac is gone, so nobody will report its end; `why` in a few words."""

    why: str


Command = Report | Lose


def decide(command: Command, state: Sandbox) -> list[Event]:
    """The events that `command` means in `state`. Raises Refusal (out-of-order) for a report that cannot follow."""
    match command:
        case Report(event):
            if (state.status, type(event)) not in TABLE:
                message = f"{type(event).__name__} cannot follow in a launch that is {state.status}"
                raise Refusal("out-of-order", message)
            return [_of(state, event)]
        case Lose(why):
            return [_of(state, LaunchExited(None, (), why))] if state.live else []


def _of(state: Sandbox, event: Event) -> Event:
    """The end of a launch with the directory that it was in."""
    if isinstance(event, LaunchExited) and state.launch is not None:
        return msgspec.structs.replace(event, workdir=state.launch.workdir)
    return event


AGGREGATE = Aggregate("sandbox", Sandbox(), decide, evolve, EVENTS, has_ended=lambda state: state.ended)
