"""A writer that runs in a nursery, and every record that it delivers."""

from collections.abc import Callable, Sequence

import trio

from omac.domain.kernel.event import Recorded
from omac.journal.application import Journal
from omac.journal.group_commit import Writer


class Live:
    """A writer. `delivered` has the folded records, in order; `error` the exception of `run`, once `ended` is set."""

    def __init__(
        self, journal: Journal, seen: int = 0, fold: Callable[[Sequence[Recorded]], None] | None = None
    ) -> None:
        self.delivered: list[Recorded] = []
        self.batches = 0
        self.ended = trio.Event()
        self.error: BaseException | None = None
        self.writer = Writer(journal, seen, self._deliver)
        self._fold = fold
        self._scope = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the writer until it fails or is stopped; keep its exception instead of raising it."""
        try:
            with self._scope:
                await self.writer.run(task_status)
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()

    def stop(self) -> None:
        """Ask the writer to end; `ended` is set when it has."""
        self._scope.cancel()

    @property
    def positions(self) -> list[int]:
        """Return the positions delivered so far."""
        return [recorded.position for recorded in self.delivered]

    def assert_whole(self, count: int) -> None:
        """Assert that exactly the positions 1 to `count` were delivered, in order, each once."""
        assert self.positions == list(range(1, count + 1))

    def _deliver(self, records: Sequence[Recorded]) -> None:
        self.batches += 1
        if self._fold:
            self._fold(records)
        self.delivered += records
