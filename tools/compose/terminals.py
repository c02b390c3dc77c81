"""Terminals that a command shares with programs in sandboxes."""

from omac.adapters.linux.terminal_holders import launcher_at as find_launcher


def launcher_at(terminal: int) -> int | None:
    """Return the pid of an omac that has a program in a sandbox at an open terminal; None: none has."""
    try:
        return find_launcher(terminal)
    except OSError:
        return None  # it has hung up: nobody types there
