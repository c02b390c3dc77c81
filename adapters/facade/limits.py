"""The limits of the facade: how long it waits and how much it accepts before it refuses."""

from omac.adapters.http.accepting import HeadLimits


class FacadeLimits(HeadLimits, frozen=True):
    """Bounds of one facade: times in seconds, sizes in bytes.

    `response_head_timeout_s` runs from the last byte of the request body; `body_idle_timeout_s` from the last byte that
    moved in either direction, `joined_idle_timeout_s` likewise once the skill has switched protocols.
    `client_idle_timeout_s` is how long a client may owe the next bytes of its body, or not read any of the answer.
    `record_timeout_s` bounds how long a caller waits for the record of its request, wherever it does: no longer than
    the recorder lets a task wait (`services/access/recorder.py: RECORD_S`). `answer_head_bytes_max` bounds the
    head of a skill's answer.
    """

    connect_timeout_s: float = 2
    response_head_timeout_s: float = 30
    body_idle_timeout_s: float = 300
    client_idle_timeout_s: float = 60
    joined_idle_timeout_s: float = 3600
    record_timeout_s: float = 5
    answer_head_bytes_max: int = 65536
