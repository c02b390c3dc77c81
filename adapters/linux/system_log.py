"""The system's log as a witness: journald by its native protocol, or syslog.

A note has several lines: journald keeps it as it is, in the field OMAC_NOTE; to syslog it goes in base64, as the last
word of its line.
"""

import base64
import os
import socket
import stat

JOURNALD, SYSLOG = "/run/systemd/journal/socket", "/dev/log"
IDENTIFIER = "omac"
NOTICE = 5
USER = 1 << 3  # RFC 3164: the facility of programs of users
SEND_S = 5.0


class JournaldWitness:
    """systemd's journal (systemd.journal-fields(7), Native Journal Protocol)."""

    name = "journald"

    def __init__(self, path: str = JOURNALD) -> None:
        self._path = path

    def deliver(self, size: int, note: str) -> None:
        """Send a note. Raises OSError."""
        content = note.encode()
        fields = {
            "MESSAGE": f"omac signed the checkpoint of {size} events", "PRIORITY": str(NOTICE),
            "SYSLOG_IDENTIFIER": IDENTIFIER, "OMAC_SIZE": str(size),
        }  # fmt: skip
        lines = "".join(f"{name}={value}\n" for name, value in fields.items()).encode()
        _send(self._path, lines + b"OMAC_NOTE\n" + len(content).to_bytes(8, "little") + content + b"\n")


class SyslogWitness:
    """The socket of syslog (RFC 3164, as programs write to /dev/log)."""

    name = "syslog"

    def __init__(self, path: str = SYSLOG) -> None:
        self._path = path

    def deliver(self, size: int, note: str) -> None:
        """Send a note. Raises OSError."""
        encoded = base64.b64encode(note.encode()).decode()
        line = f"<{USER | NOTICE}>{IDENTIFIER}[{os.getpid()}]: checkpoint of {size} events {encoded}"
        _send(self._path, line.encode())


def present(path: str) -> bool:
    """Return whether a socket exists at a path."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _send(path: str, datagram: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.settimeout(SEND_S)
        sender.connect(path)
        sender.send(datagram)
