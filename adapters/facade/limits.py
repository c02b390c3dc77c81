"""How long the facade waits and how much it takes in before it says no."""

import msgspec


class FacadeLimits(msgspec.Struct, frozen=True):
    """Bounds of one facade: times in seconds, sizes in bytes.

    `head_timeout_s` runs from the first byte of a request (from the accept, for the first request of a connection);
    `idle_timeout_s` between two requests; `response_head_timeout_s` from the last byte of the request body;
    `body_idle_timeout_s` from the last byte that moved in either direction. `record_timeout_s` bounds how long a
    caller waits for the record of its request.
    """

    head_timeout_s: float = 15
    idle_timeout_s: float = 300
    connect_timeout_s: float = 2
    response_head_timeout_s: float = 30
    body_idle_timeout_s: float = 300
    record_timeout_s: float = 10
    head_bytes_max: int = 65536
