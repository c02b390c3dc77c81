"""Records that a connection waits for: with a deadline for the caller, and to their end for the journal."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import outcome
import trio

from omac.domain.refusal import Refusal

Result = TypeVar("Result")


async def recorded_within(
    seconds: float,
    nursery: trio.Nursery,
    record: Callable[[], Awaitable[Result]],
    settle: Callable[[Result], None] = lambda _: None,
) -> Result:
    """The result of `record`, which neither a client nor a stop interrupts before `seconds` have passed.

    Raises Refusal journal-unavailable when it takes longer. It goes on in `nursery` then, and `settle` gets what came
    of it: a record without an outcome would be left otherwise. One that is cut by a stop is settled by the next start.
    """
    results: list[outcome.Outcome[Result]] = []
    done = trio.Event()
    writing = trio.CancelScope(shield=True)
    late = False

    async def run() -> None:
        with writing:
            result = await outcome.acapture(record)
            results.append(result)
            if late and isinstance(result, outcome.Value):
                settle(result.value)
        done.set()

    nursery.start_soon(run)
    with trio.move_on_after(seconds, shield=True):
        await done.wait()
    if results:
        return results[0].unwrap()
    late, writing.shield = True, False
    message = f"the journal did not take a record within {seconds:g} s; the request was not carried out"
    raise Refusal("journal-unavailable", message, fix=["omac status", "try again"])
