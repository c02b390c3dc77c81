"""The bridge's listener, called from an agent's hook: by its Unix socket where the sandbox has that, else by its port.

A hook lives for some milliseconds, so the request is written by hand: one call, one connection, HTTP/1.1.
"""

from __future__ import annotations

import os

from omac.domain.kernel.refusal import Reason, Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from socket import socket
    from typing import Any

WITHIN_S = 15.0  # an activation answers after 4 s at most; beside it others may be under way
ANSWER_BYTES_MAX = 4 * 1024 * 1024
TOKEN_BYTES_MAX = 1024


def call(action: str, document: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what omac answers to a call of its bridge's listener, which the environment names. Raises Refusal: what
    omac refused, prerequisite-missing (there is no omac to call), upstream-error (it does not answer)."""
    import json

    body = json.dumps(document).encode()
    head = f"POST /__omac__/{action} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_token(environment)}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    try:
        with _connected(environment) as connection:
            connection.sendall(head.encode("ascii") + body)
            answer = _received(connection)
        status = int(answer.split(b" ", 2)[1])
        content = json.loads(answer.partition(b"\r\n\r\n")[2])
        if not isinstance(content, dict):
            raise ValueError("no object")
    except (OSError, ValueError, IndexError) as problem:
        message = f"omac did not answer {action}: {problem}"
        raise Refusal("upstream-error", message, fix=["omac status  # on the host"]) from None
    if status != 200:
        reason: Reason = "bad-request" if status < 500 else "upstream-error"
        raise Refusal(reason, str(content.get("error")), fix=[str(command) for command in content.get("fix") or ()])
    return content


def _token(environment: Mapping[str, str]) -> str:
    path = environment.get("OMAC_CONTROL_TOKEN_FILE", "")
    try:
        with open(path, "rb") as file:
            token = file.read(TOKEN_BYTES_MAX).decode("ascii").strip()
    except (OSError, ValueError) as problem:
        message = f"this agent was not started by omac, or cannot reach it ({problem})"
        raise Refusal("prerequisite-missing", message, fix=["omac start"]) from None
    return token if token.isalnum() else ""


def _connected(environment: Mapping[str, str]) -> socket:
    """A connection to the listener. Raises OSError, ValueError."""
    import socket

    path = environment.get("OMAC_CONTROL_SOCKET", "")
    if path and os.path.exists(path):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(WITHIN_S)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            raise
        return connection
    host, _, port = environment.get("OMAC_CONTROL_BASE", "").removeprefix("http://").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), WITHIN_S)


def _received(connection: socket) -> bytes:
    """The whole answer; the listener closes the connection behind it. Raises OSError, ValueError."""
    parts, size = [], 0
    while part := connection.recv(1 << 16):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise ValueError("its answer is too large")
    return b"".join(parts)
