"""The poller in the wait of Trio's loop: an event takes no pass of the loop, and Trio loses nothing by it."""

import itertools
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial

import pytest
import trio
import trio.testing

from omac.adapters.facade.poller import Poller

EXCHANGES = 300
SOON_S = 5

place: ContextVar[str] = ContextVar("place", default="nowhere")


class Echo:
    """The owner of one end of a pair of sockets; `heard` is called with the number of messages so far."""

    def __init__(self, poller: Poller, *, begins: bool = True) -> None:
        self._poller = poller
        self.begins = begins
        self.own, self.peer = socket.socketpair()
        self.own.setblocking(False)
        self.count = self.faults = 0
        self.heard: Callable[[int], object] = bool
        poller.watch(self.own, self)

    def ready(self, _events: int) -> None:
        try:
            while self.own.recv(1):
                self.count += 1
                self.heard(self.count)
        except BlockingIOError:
            pass

    def fail(self) -> None:
        self.faults += 1

    def send(self) -> None:
        """Have another event come."""
        self.peer.send(b"x")

    def close(self) -> None:
        self._poller.forget(self.own)
        self.own.close()
        self.peer.close()


class Passes(trio.abc.Instrument):
    """The number of passes of the loop, and of its waits."""

    def __init__(self) -> None:
        self.passes = self.waits = 0

    def before_io_wait(self, timeout: float) -> None:
        self.waits += timeout > 0

    def after_io_wait(self, _timeout: float) -> None:
        self.passes += 1


@pytest.fixture
async def poller(nursery: trio.Nursery) -> AsyncIterator[Poller]:
    """Yield a poller that runs."""
    running, scope = Poller.of_loop(), trio.CancelScope()

    async def run() -> None:
        with scope:
            await running.run()

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked()
    yield running
    scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    running.close()


@asynccontextmanager
async def polling() -> AsyncIterator[Poller]:
    """Yield a poller that runs, in a task of this one."""
    poller = Poller.of_loop()
    try:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(poller.run)
            await trio.testing.wait_all_tasks_blocked()
            yield poller
            tasks.cancel_scope.cancel()
    finally:
        poller.close()


@contextmanager
def echo_of(poller: Poller) -> Iterator[Echo]:
    """Yield an Echo, and close it."""
    echo = Echo(poller)
    try:
        yield echo
    finally:
        echo.close()


@contextmanager
def sent_later(echo: Echo) -> Iterator[None]:
    """Have an event come when the loop waits for nothing else."""
    sender = threading.Timer(0.05, echo.send)
    sender.start()
    yield
    sender.join()


def exchange(echo: Echo, times: int) -> None:
    """Send messages, each when the one before was answered. For a thread."""
    for _ in range(times):
        echo.peer.sendall(b"x")
        assert echo.peer.recv(1) == b"y"


async def test_an_event_takes_no_pass_of_the_loop(poller: Poller) -> None:
    """Messages that follow one another are answered in one wait of Trio's, and its instruments see each time that the
    loop is about to wait."""
    seen = Passes()
    with echo_of(poller) as echo:
        echo.heard = lambda _count: echo.own.send(b"y")
        trio.lowlevel.add_instrument(seen)
        with trio.fail_after(SOON_S):
            await trio.to_thread.run_sync(exchange, echo, EXCHANGES)
        trio.lowlevel.remove_instrument(seen)
    assert echo.count == EXCHANGES
    assert seen.passes < EXCHANGES / 10
    assert seen.waits > 2 * seen.passes


async def test_events_without_an_end_leave_trio_its_turns(poller: Poller) -> None:
    """While events follow one another without a pause, tasks go on: those that run, that wait for a moment, for a
    socket, and for a thread."""
    with echo_of(poller) as echo, trio.fail_after(SOON_S):
        echo.heard = lambda _count: poller.put_off(echo, echo.send)
        echo.send()
        for _ in range(5):
            before = echo.count
            await trio.sleep(0.01)
            assert echo.count > before
            await trio.to_thread.run_sync(bool)
            mine, other = trio.socket.socketpair()
            async with trio.open_nursery() as tasks:
                tasks.start_soon(other.send, b"z")
                assert await mine.recv(1) == b"z"
            mine.close()
            other.close()
            for _ in range(10):
                await trio.lowlevel.checkpoint()


async def test_a_task_that_an_event_wakes_runs_at_once(poller: Poller) -> None:
    """An owner may set an event that a task awaits, and start a task."""
    woken, started = trio.Event(), trio.Event()
    async with trio.open_nursery() as tasks:

        async def begin() -> None:
            started.set()

        def heard(_count: int) -> None:
            woken.set()
            tasks.start_soon(begin)

        with echo_of(poller) as echo, trio.fail_after(SOON_S):
            echo.heard = heard
            with sent_later(echo):
                await woken.wait()
                await started.wait()


async def test_a_deadline_that_an_event_sets_is_kept(poller: Poller) -> None:
    """The loop waits no longer than to a deadline that came while it waited."""
    with echo_of(poller) as echo, trio.fail_after(SOON_S), trio.CancelScope() as scope:

        def heard(_count: int) -> None:
            scope.deadline = trio.current_time() + 0.05

        echo.heard = heard
        with sent_later(echo):
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_fault_of_an_owner_is_its_own(poller: Poller, caplog: pytest.LogCaptureFixture) -> None:
    """A fault while the loop waits ends the owner's connection, and neither the loop nor the poller."""
    with echo_of(poller) as broken, echo_of(poller) as echo, trio.fail_after(SOON_S):

        def heard(_count: int) -> None:
            raise ValueError("wrong")

        broken.heard = heard
        echo.heard = lambda _count: echo.own.send(b"y")
        broken.peer.send(b"x")
        await trio.to_thread.run_sync(exchange, echo, 3)
    assert (broken.faults, echo.faults) == (1, 0)
    assert "ValueError" in caplog.text


async def test_owners_have_the_context_of_who_polls() -> None:
    """A callback finds the context variables of the task that made the poller, such as the place where warnings go."""
    place.set("here")
    seen = list[str]()
    async with polling() as poller:
        with echo_of(poller) as echo, trio.fail_after(SOON_S):
            echo.heard = lambda _count: seen.append(place.get())
            echo.send()
            while not seen:
                await trio.sleep(0.001)
    assert seen == ["here"]


async def test_a_clock_that_jumps_waits_for_events(autojump_clock: trio.testing.MockClock) -> None:
    """A wait in which events were handled is no idle one: time does not jump over what follows from them."""
    async with polling() as poller:
        with echo_of(poller) as echo:
            echo.heard = lambda count: poller.put_off(echo, echo.send) if count < EXCHANGES else None
            echo.send()
            began = trio.current_time()
            await trio.sleep(1_000)
            assert echo.count == EXCHANGES
            assert trio.current_time() == began + 1_000


async def test_two_users_share_the_poller_of_a_loop() -> None:
    """A loop has one poller, which polls until the last user has left; then Trio waits as ever, and the next user gets
    another."""
    await trio.testing.wait_all_tasks_blocked()
    waits = repr(trio.lowlevel.current_statistics().io_statistics)
    first, second = Poller.of_loop(), Poller.of_loop()
    assert first is second
    async with trio.open_nursery() as tasks:
        scopes = [trio.CancelScope() for _ in range(2)]

        async def run(scope: trio.CancelScope) -> None:
            with scope:
                await first.run()

        for scope in scopes:
            tasks.start_soon(run, scope)
        await trio.testing.wait_all_tasks_blocked()
        assert repr(trio.lowlevel.current_statistics().io_statistics) == waits
        with echo_of(first) as echo, trio.fail_after(SOON_S):
            echo.heard = lambda _count: echo.own.send(b"y")
            scopes[0].cancel()
            await trio.to_thread.run_sync(exchange, echo, 3)
        first.close()
        scopes[1].cancel()
    second.close()
    await trio.sleep(0.001)
    third = Poller.of_loop()
    assert third is not first
    third.close()


async def test_threads_are_heard_in_their_order(poller: Poller) -> None:
    """All calls that threads ask for happen, those of one thread in its order."""
    count, heard, done = 500, list[tuple[int, int]](), trio.Event()

    def hear(thread: int, number: int) -> None:
        heard.append((thread, number))
        if len(heard) == 4 * count:
            done.set()

    def speak(thread: int) -> None:
        for number in range(count):
            poller.call_soon(partial(hear, thread, number))
            if number % 50 == 0:
                threading.Event().wait(0.001)

    with trio.fail_after(SOON_S):
        async with trio.open_nursery() as threads:
            for thread in range(4):
                threads.start_soon(trio.to_thread.run_sync, speak, thread)
        await done.wait()
    for thread in range(4):
        assert [number for who, number in heard if who == thread] == list(range(count))


async def test_threads_may_speak_while_the_poller_closes() -> None:
    """A thread that comes too late is heard no more, and writes into no descriptor that is another's by then."""
    for _ in range(20):
        poller, heard = Poller.of_loop(), list[int]()
        ended = threading.Event()

        def speak(poller: Poller = poller, heard: list[int] = heard, ended: threading.Event = ended) -> None:
            while not ended.is_set():
                poller.call_soon(lambda: heard.append(1))

        thread = threading.Thread(target=speak)
        thread.start()
        async with trio.open_nursery() as tasks:
            tasks.start_soon(poller.run)
            with trio.fail_after(SOON_S):
                while not heard:
                    await trio.sleep(0)
            tasks.cancel_scope.cancel()
        poller.close()
        pairs = [socket.socketpair() for _ in range(5)]  # one has the descriptor now
        before = len(heard)
        await trio.sleep(0.002)
        ended.set()
        thread.join()
        for sock in itertools.chain(*pairs):
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)
        for sock in itertools.chain(*pairs):
            sock.close()
        assert len(heard) == before


def test_a_fault_that_is_nobodys_ends_who_polls() -> None:
    """A fault beyond the owner of a socket is raised where the poller runs, so that all tasks end in their order, and
    does not break off Trio's loop."""
    ended = list[str]()

    async def main() -> None:
        def fail() -> None:
            raise ValueError("wrong")

        try:
            async with polling() as poller:
                with echo_of(poller) as echo:
                    echo.heard = lambda _count: fail()
                    echo.fail = fail  # type: ignore[method-assign]
                    with trio.fail_after(SOON_S), sent_later(echo):
                        await trio.sleep_forever()
        finally:
            await trio.to_thread.run_sync(ended.append, "in order", abandon_on_cancel=False)

    with pytest.RaisesGroup(ValueError, flatten_subgroups=True):
        trio.run(main)
    assert ended == ["in order"]


def test_an_interrupt_tears_no_owner_apart() -> None:
    """Ctrl-C while an owner handles an event is raised in a task, as Trio does while it runs its own code."""
    handled = []

    def heard(count: int) -> None:
        signal.raise_signal(signal.SIGINT)
        handled.append(count)

    async def main() -> None:
        async with polling() as poller:
            with echo_of(poller) as echo:
                echo.heard = heard
                echo.send()
                with trio.fail_after(SOON_S):
                    await trio.sleep_forever()

    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True):
        trio.run(main)
    assert handled == [1]
