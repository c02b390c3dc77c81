"""The three standard streams, which a caller may have closed."""

import os
import sys


def open_standard() -> None:
    """A standard stream that is closed leads nowhere, before its number is given to something else."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None or sys.stderr is None:
        sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115  # for as long as the process
        sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
