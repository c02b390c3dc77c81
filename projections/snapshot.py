"""A snapshot of the system: its read models as bytes at one position, and back.

Folded on from a snapshot, the system is the one that the whole journal gives, to the byte. It is bounded by what lives,
as the read models are. Decoding makes values of the types that the read models state, and nothing else.
"""

from functools import cache
from typing import Any

import msgspec

from omac.domain.aggregates import AGGREGATES
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.projections.aggregates import AggregatesState
from omac.projections.run_namespaces import RunNamespacesState
from omac.projections.system import System

FORM = 13  # raised when a fold gives another state for the same events, or a state another form


class SystemState(msgspec.Struct, frozen=True):
    """The complete state of a System; `aggregates` by their names, each encoded by itself."""

    position: int
    aggregates: dict[str, msgspec.Raw]
    accesses: dict[int, tuple[StreamId, str]]
    completed: int
    aborted: int
    refused: int
    denied: int
    controls_called: int
    controls_refused: int
    tokens: dict[TokenDigest, StreamId]
    run_namespaces: RunNamespacesState


def encoded(system: System) -> bytes:
    """Return a snapshot of the system."""
    encode = msgspec.msgpack.encode
    state = SystemState(
        system.position,
        {name: msgspec.Raw(encode(aggregates.state())) for name, aggregates in system.aggregates.items()},
        system.accesses.open, system.accesses.completed, system.accesses.aborted, system.accesses.refused,
        system.guarded.denied, system.controls.called, system.controls.refused,
        system.tokens.streams, system.run_namespaces.state(),
    )  # fmt: skip
    return encode(state)


def decoded(snapshot: bytes) -> System:
    """Return the system of a snapshot. Raises ValueError for bytes that are none of this form."""
    system = System()
    try:
        state = msgspec.msgpack.decode(snapshot, type=SystemState)
        if state.aggregates.keys() != system.aggregates.keys():
            raise ValueError("it has other aggregates")
        for name, decoder in _decoders().items():
            system.aggregates[name].restore(decoder.decode(state.aggregates[name]))
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise ValueError(f"it is no snapshot: {problem}") from problem
    system.accesses.open.update(state.accesses)
    system.accesses.completed, system.accesses.aborted = state.completed, state.aborted
    system.accesses.refused = state.refused
    system.guarded.denied = state.denied
    system.controls.called, system.controls.refused = state.controls_called, state.controls_refused
    system.tokens.streams.update(state.tokens)
    system.run_namespaces.restore(state.run_namespaces)
    system.position = state.position
    return system


@cache
def _decoders() -> dict[str, msgspec.msgpack.Decoder[Any]]:
    return {
        aggregate.name: msgspec.msgpack.Decoder(AggregatesState[type(aggregate.initial)])  # type: ignore[misc]
        for aggregate in AGGREGATES
        if aggregate.versioned
    }
