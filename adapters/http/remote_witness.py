"""Another omac as a witness: its server takes signed checkpoints by HTTP.

Rules

1. The token is read from its file for each delivery. It goes to the address that a person named and to no other:
   over TLS or, in the clear, to this machine.
2. A redirect is no answer. Of whatever is answered no more than a few lines are read, and none are obeyed.
"""

import http.client
import json
import os
import stat
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from omac.adapters.files.bounded import open_no_link

ANSWER_BYTES_MAX = 65_536
TOKEN_BYTES_MAX = 4_096
TIMEOUT_S = 8.0
CALL = "/__omac__/witness"
_ANSWERS = "it answers"
CONTESTED = f"{_ANSWERS} 409"  # a checkpoint that contradicts what the witness keeps

Proof = Callable[[], tuple[str, Sequence[str]]]  # the verifier key, and the notes of rotations that lead to it


class RemoteWitness:
    """The omac at `url`, with the token in `token_file`."""

    def __init__(self, url: str, token_file: str, proof: Proof) -> None:
        self.name = url
        self._token_file = token_file
        self._proof = proof

    def deliver(self, _size: int, note: str) -> None:
        """Send a note, and wait until it is kept. Raises OSError."""
        key, rotations = self._proof()
        body = json.dumps({"note": note, "key": key, "rotations": list(rotations)}).encode()
        fields = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
        connection = _connection(self.name)
        try:
            connection.request("POST", CALL, body, fields)
            answer = connection.getresponse()
            content = answer.read(ANSWER_BYTES_MAX)
        except http.client.HTTPException as problem:
            raise OSError(None, f"its answer is no HTTP: {type(problem).__name__}") from problem
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(None, _problem(answer.status, content))

    def _token(self) -> str:
        if not self._token_file:
            raise OSError(None, "no token: journal.witness_token names the file that has it")
        with open(self._token_file, "rb", opener=open_no_link) as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
                raise PermissionError(None, f"{self._token_file} is no file that you alone can read")
            token = file.read(TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise OSError(None, f"{self._token_file} holds no token")
        return token


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)


def _problem(status: int, content: bytes) -> str:
    """Return why it did not keep the note: what it says itself, cut short, is shown; it may be anybody's."""
    try:
        document = json.loads(content)
        text = document["error"] if isinstance(document["error"], str) else ""
    except (ValueError, LookupError, TypeError, RecursionError):
        text = ""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:200])
    return f"{_ANSWERS} {status}: {shown}" if shown else f"{_ANSWERS} {status}"
