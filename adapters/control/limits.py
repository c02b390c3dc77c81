"""The limits of the control plane: how long it waits and how much it accepts before it refuses."""

from omac.adapters.http.accepting import HeadLimits


class ControlLimits(HeadLimits, frozen=True):
    """Bounds of one listener of the control plane: times in seconds, sizes in bytes.

    `body_timeout_s` and `send_timeout_s` are for a whole body and a whole answer; `call_timeout_s` for what was asked,
    such as an activation; `record_timeout_s` for the record of a refusal.
    """

    head_timeout_s: float = 10
    idle_timeout_s: float = 60
    body_timeout_s: float = 10
    call_timeout_s: float = 300
    send_timeout_s: float = 10
    record_timeout_s: float = 5
    head_bytes_max: int = 16 * 1024
    body_bytes_max: int = 64 * 1024
