"""A change of a file of the person's: its request is on record before the file is touched, its outcome after."""

from collections.abc import Callable
from typing import Any

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.unflushed import Unflushed
from omac.services.kernel.execution import Command, Execution


async def change_file(
    execution: Execution,
    aggregate: Aggregate[Any, Command],
    stream: StreamId,
    request: Command,
    write: Callable[[], None],
    *,
    changed: str,
    done: Command,
    failed: Callable[[str], Command],
) -> None:
    """Record the command `request`, `write`, and record `done`, or the command that `failed` makes of the reason. A
    refusal names what is `changed` where that is made, and only not recorded. Raises Refusal, and what `write`
    raises."""

    async def record(command: Command) -> None:
        await execution.execute(aggregate, stream, command, PERSON)

    async def record_done() -> None:
        try:
            await record(done)
        except Refusal as refusal:
            message = f"{changed} is changed, but that is not recorded: {refusal.message}"
            raise Refusal(refusal.reason, message, fix=refusal.fix) from refusal

    await record(request)
    try:
        write()
    except Unflushed:
        await record_done()
        raise
    except (OSError, Refusal) as problem:
        await record(failed(str(problem)))
        raise
    await record_done()
