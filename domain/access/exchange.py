"""An exchange: one admitted request on its way to a skill, and the answer on its way back. Nothing of it is recorded
but its end, so it is no aggregate; the facade reports each event and does the I/O.

Rules

1. An exchange ends once, in one of `ENDS`. It is completed, or aborted for the first reason that is reported.
2. Before a byte of the answer was sent, the client can still be told why: `refused`, or `abandoned` when the client
   left, omac stops or a fault was met. After that the answer is `broken_off` and must not look whole.
3. Two limits: `idle_s` from the last bytes in either direction; from the end of the body until the answer, `answer_s`.
4. A client that has closed may have read its last bytes already: in `ending` only a failure to send is the client's
   end.
5. What follows on the connection is a request only if the body was read to its end: not in `completed_early`.
6. When the skill switches protocols the two are `joined`: bytes go both ways until both sides have finished, with an
   idle limit of their own, `joined_idle_s`.
"""

from typing import Literal, get_args

from omac.domain.kernel.refusal import Refusal

Status = Literal[
    "connecting", "sending", "waiting", "answering", "ending", "joined",
    "completed", "completed_early", "refused", "broken_off", "abandoned",
]  # fmt: skip
Kind = Literal[
    "connected", "connect-failed", "body-bytes", "body-sent", "body-refused",
    "answer-bytes", "answer-last", "answer-sent", "answer-sent-early", "switched", "both-finished",
    "client-closed", "client-lost", "skill-failed", "timed-out", "cut", "stopped", "faulted",
]  # fmt: skip

ABORTED: tuple[Status, ...] = ("refused", "broken_off", "abandoned")
ENDS: tuple[Status, ...] = ("completed", "completed_early", *ABORTED)
BYTES = frozenset[Kind](("body-bytes", "answer-bytes", "answer-last"))
REASONS: dict[Kind, str] = {  # of the events that come without a refusal
    "client-closed": "client-gone",
    "client-lost": "client-gone",
    "stopped": "stopping",
    "faulted": "upstream-error",
}

ARROWS: tuple[tuple[Status, Status, tuple[Kind, ...]], ...] = (
    ("connecting", "sending", ("connected",)),
    ("connecting", "refused", ("connect-failed", "timed-out", "cut")),
    ("connecting", "abandoned", ("client-closed", "stopped", "faulted")),
    ("sending", "sending", ("body-bytes",)),
    ("sending", "waiting", ("body-sent",)),
    ("sending", "answering", ("answer-bytes",)),
    ("sending", "ending", ("answer-last",)),
    ("sending", "refused", ("body-refused", "skill-failed", "timed-out", "cut")),
    ("sending", "abandoned", ("client-closed", "client-lost", "stopped", "faulted")),
    ("waiting", "answering", ("answer-bytes",)),
    ("waiting", "ending", ("answer-last",)),
    ("waiting", "refused", ("skill-failed", "timed-out", "cut")),
    ("waiting", "abandoned", ("client-closed", "stopped", "faulted")),
    ("answering", "answering", ("body-bytes", "body-sent", "answer-bytes")),
    ("answering", "ending", ("answer-last",)),
    ("answering", "broken_off", ("body-refused", "skill-failed", "timed-out", "cut")),
    ("answering", "broken_off", ("client-closed", "client-lost", "stopped", "faulted")),
    ("ending", "ending", ("body-bytes", "body-sent", "answer-bytes", "client-closed")),
    ("ending", "completed", ("answer-sent",)),
    ("ending", "completed_early", ("answer-sent-early",)),
    ("ending", "broken_off", ("body-refused", "timed-out", "cut", "client-lost", "stopped", "faulted")),
    ("sending", "joined", ("switched",)),
    ("waiting", "joined", ("switched",)),
    ("joined", "joined", ("body-sent", "body-bytes", "answer-bytes")),
    ("joined", "completed", ("both-finished",)),
    ("joined", "broken_off", ("skill-failed", "timed-out", "cut", "client-lost", "stopped", "faulted")),
    *((end, end, get_args(Kind)) for end in ENDS),
)
TABLE: dict[tuple[Status, Kind], Status] = {(before, kind): after for before, after, kinds in ARROWS for kind in kinds}


class ExchangeProgress:
    """The state of one exchange. `reason` says why it was aborted, `refusal` what the client is told about it."""

    __slots__ = ("_answer_s", "_idle_s", "_joined_idle_s", "over", "reason", "refusal", "status")

    def __init__(self, *, idle_s: float, answer_s: float, joined_idle_s: float) -> None:
        self._idle_s = idle_s
        self._joined_idle_s = joined_idle_s
        self._answer_s = answer_s
        self.status: Status = "connecting"
        self.over = False
        self.reason: str | None = None
        self.refusal: Refusal | None = None

    def on(self, kind: Kind, refusal: Refusal | None = None) -> float | None:
        """Take in an event; return in how many seconds it times out, None: no limit begins with this event. Raises
        KeyError for an event that cannot follow, and for one without its refusal."""
        after = TABLE[self.status, kind]
        if self.over:
            return None
        self.status = after
        if after == "joined":
            return self._joined_idle_s
        if kind in BYTES:
            return self._idle_s
        if after in ABORTED:
            self.reason = refusal.reason if refusal else REASONS[kind]
            self.refusal = refusal if after == "refused" else None
        self.over = after in ENDS
        return self._answer_s if after == "waiting" else None

    def answer_status(self, of_skill: int | None) -> int | None:
        """Return the status that the client got, None: none. `of_skill` is the one that the skill answered with."""
        if self.refusal is not None:
            return self.refusal.status
        return None if self.status == "abandoned" else of_skill
