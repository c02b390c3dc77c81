"""The facts about this machine that `omac sandbox doctor` judges."""

from omac.adapters.sandbox import probes
from omac.domain.sandbox.doctor import Machine


def probe_machine() -> Machine:
    """Return all facts, in some 50 ms."""
    return probes.machine()
