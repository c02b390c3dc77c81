"""Refusals: what omac will not do, whose fault that is, and the command that mends it.

A refusal is decided once and rendered three ways: as an HTTP answer (status, `X-Omac-Reason`), as a process
exit code, and as text for a person.
"""

from __future__ import annotations

from omac.domain.kernel import PlainData
from omac.domain.kernel.terminal_escaping import is_plain

TYPE_CHECKING = False  # importing typing would take longer than all the rest of this module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    Reason = Literal[  # the keys of REASONS: a test keeps them equal
        "bad-request", "unauthorized", "forbidden", "foreign-origin", "not-found", "method-not-allowed",
        "misdirected-host", "body-too-large", "head-too-large", "client-timeout", "too-many-calls",
        "directory-missing", "not-a-directory", "outside-roots", "activation-failed", "directory-offline", "stopping",
        "unknown-mount", "revoked", "skill-not-found", "skill-without-sidecar", "skill-ambiguous", "skill-invalid",
        "skill-changed", "pending-credentials", "skill-broken", "sidecar-down", "upstream-error", "timeout",
        "value-refused", "keychain-locked", "keychain-unavailable", "keychain-timeout", "keychain-failed",
        "vault-locked", "vault-key-wrong", "vault-unusable", "vault-damaged", "vault-exists", "prompt-ended",
        "journal-unavailable", "journal-read-only", "journal-newer", "journal-damaged", "journal-lost",
        "journal-in-use", "checkpoint-contested", "pruned", "contention", "out-of-order", "unfoldable",
        "settings-invalid", "misuse", "port-taken", "state-unusable", "prerequisite-missing",
        "sandbox-unavailable", "sandbox-failed", "sandbox-inexpressible", "limit-unenforceable", "policy-too-large",
        "path-changed", "inside-sandbox", "unsafe-link", "git-unsafe", "git-unsupported", "cache-unsafe",
        "command-not-found", "command-not-executable",
    ]  # fmt: skip
else:
    Reason = str


class Outcome(PlainData):
    """The form in which a reason leaves omac: an HTTP status and a process exit code."""

    status: int
    exit_code: int


REASONS: dict[Reason, Outcome] = {
    # the caller's request
    "bad-request": Outcome(400, 2),
    "unauthorized": Outcome(401, 1),
    "forbidden": Outcome(403, 1),
    "foreign-origin": Outcome(403, 1),
    "not-found": Outcome(404, 1),
    "method-not-allowed": Outcome(405, 2),
    "misdirected-host": Outcome(421, 1),
    "body-too-large": Outcome(413, 1),
    "head-too-large": Outcome(431, 1),
    "client-timeout": Outcome(408, 1),
    "too-many-calls": Outcome(429, 1),
    # directories
    "directory-missing": Outcome(400, 2),
    "not-a-directory": Outcome(400, 2),
    "outside-roots": Outcome(400, 2),
    "activation-failed": Outcome(500, 1),
    "directory-offline": Outcome(409, 1),
    "stopping": Outcome(503, 1),
    # skills
    "unknown-mount": Outcome(404, 1),
    "revoked": Outcome(403, 1),
    "skill-not-found": Outcome(404, 4),
    "skill-without-sidecar": Outcome(400, 2),
    "skill-ambiguous": Outcome(400, 2),
    "skill-invalid": Outcome(400, 3),
    "skill-changed": Outcome(409, 9),
    "pending-credentials": Outcome(409, 9),
    "skill-broken": Outcome(502, 6),
    "sidecar-down": Outcome(503, 6),
    "upstream-error": Outcome(502, 6),
    "timeout": Outcome(504, 6),
    # values and where secrets are kept
    "value-refused": Outcome(400, 9),
    "keychain-locked": Outcome(409, 8),
    "keychain-unavailable": Outcome(503, 8),
    "keychain-timeout": Outcome(504, 8),
    "keychain-failed": Outcome(502, 8),
    "vault-locked": Outcome(409, 8),
    "vault-key-wrong": Outcome(409, 8),
    "vault-unusable": Outcome(503, 8),
    "vault-damaged": Outcome(503, 10),
    "vault-exists": Outcome(409, 2),
    "prompt-ended": Outcome(400, 9),
    # the journal
    "journal-unavailable": Outcome(503, 5),
    "journal-read-only": Outcome(503, 5),
    "journal-newer": Outcome(503, 5),
    "journal-damaged": Outcome(503, 10),
    "journal-lost": Outcome(503, 10),
    "journal-in-use": Outcome(503, 5),
    "checkpoint-contested": Outcome(409, 10),
    "pruned": Outcome(410, 1),
    "contention": Outcome(503, 5),
    "out-of-order": Outcome(409, 5),
    "unfoldable": Outcome(500, 1),
    # starting omac
    "settings-invalid": Outcome(400, 3),
    "misuse": Outcome(400, 2),
    "port-taken": Outcome(503, 5),
    "state-unusable": Outcome(503, 5),
    "prerequisite-missing": Outcome(503, 4),
    # the sandbox
    "sandbox-unavailable": Outcome(503, 7),
    "sandbox-failed": Outcome(503, 7),
    "sandbox-inexpressible": Outcome(503, 7),
    "limit-unenforceable": Outcome(503, 7),
    "policy-too-large": Outcome(400, 7),
    "path-changed": Outcome(409, 7),
    "inside-sandbox": Outcome(403, 7),
    "unsafe-link": Outcome(409, 7),
    "git-unsafe": Outcome(409, 7),
    "git-unsupported": Outcome(501, 7),
    "cache-unsafe": Outcome(409, 7),
    "command-not-found": Outcome(400, 127),
    "command-not-executable": Outcome(400, 126),
}


COUNT_PROCESSES = 'ulimit -u; ps -L -u "$(id -u)" | wc -l  # the limit of processes and threads, and how many there are'
LIST_LIMITS = "ulimit -a  # the limits of this shell"

KERNEL_MESSAGES = "sudo dmesg | tail  # what the kernel says of the disk"


def list_command(path: str) -> str:
    """The command by which a person sees what is at a path, ready to be pasted."""
    return f"ls -ld {quoted(path)}"


def problem_of(error: OSError) -> str:
    """Return what the system refused, for people: the path, where it names one, and the reason without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if isinstance(error.filename, str) else reason


def quoted(word: str) -> str:
    """A word of a command that can be pasted: as `shlex.quote` has it, or between $' and ' where a terminal would obey
    or hide a character of it."""
    import shlex  # errors alone need it, and it takes longer to load than all the rest of this module

    if is_plain(word):
        return shlex.quote(word)
    return f"$'{''.join(map(_quoted_character, word))}'"


def _quoted_character(char: str) -> str:
    if is_plain(char):
        return f"\\{char}" if char in "\\'" else char
    is_byte = "\udc80" <= char <= "\udcff"  # of a path that is no text
    return "".join(f"\\{byte:03o}" for byte in char.encode(errors="surrogateescape" if is_byte else "surrogatepass"))


class Refusal(Exception):
    """omac will not do this. `message` says what happened and where; `fix` lists commands that can be pasted.

    `skill` names the skill it is about, if it is about one; `missing` the values that it waits for.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        fix: Sequence[str] = (),
        skill: str | None = None,
        missing: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.fix = tuple(fix)
        self.skill = skill
        self.missing = tuple(missing)

    @property
    def status(self) -> int:
        """The HTTP status this becomes."""
        return REASONS[self.reason].status

    @property
    def exit_code(self) -> int:
        """The process exit code this becomes."""
        return REASONS[self.reason].exit_code


def stopping() -> Refusal:
    """The refusal of whatever would begin, or still waits, when omac ends."""
    return Refusal(
        "stopping", "omac is stopping and accepts no new work", fix=("omac ps  # lists it until it has ended",)
    )
