"""Changes outside the journal that are made: their outcome is recorded, or a refusal says that they are made."""

from typing import Any

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.services.kernel.execution import Execution


async def record_made(
    execution: Execution, aggregate: Aggregate[Any, Any], stream: StreamId, outcome: Any, changed: str
) -> None:
    """Record that what a person asked for is made; `changed` names it. Raises Refusal."""
    try:
        await execution.execute(aggregate, stream, outcome, PERSON)
    except Refusal as refusal:
        message = f"{changed} is changed, but that is not recorded: {refusal.message}"
        raise Refusal(refusal.reason, message, fix=refusal.fix) from refusal
