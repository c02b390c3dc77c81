"""The log of a problem that each new try meets: one line while it lasts, and another one once it comes again."""

import logging


class ProblemLog:
    """Logs to `log` what `met` is given, unless that was said last; a success in between makes it news again."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last = ""

    def met(self, problem: str) -> None:
        """Log a problem, if it is another one than before."""
        if problem != self._last:
            self._log.error("%s", problem)
        self._last = problem

    def over(self) -> None:
        """Take note that a try succeeded."""
        self._last = ""
