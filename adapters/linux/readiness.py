"""The service manager that started this process, and what it learns (sd_notify(3))."""

import logging
import socket
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"  # where systemd listens: a path, or behind an @ the name of an abstract socket

_log = logging.getLogger("omac.serve")


def notify_ready(environment: Mapping[str, str]) -> None:
    """Report to the service manager, if one asked for it, that this process serves now."""
    named = environment.get(VARIABLE, "")
    if not named.startswith(("/", "@")):  # none, or a kind of socket that no manager of this machine has
        return
    address = "\0" + named[1:] if named.startswith("@") else named
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.sendto(b"READY=1", socket.MSG_DONTWAIT, address)
    except OSError as problem:
        _log.warning("the service manager at %s cannot be reached: %s", named, problem.strerror)
