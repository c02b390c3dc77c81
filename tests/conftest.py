"""The two tiers of a run (`tests/tiers.py`), and the surroundings that programs under test find."""

import os
import signal
import sys
from pathlib import Path

import pytest
import tiers
from hypothesis import settings

_TESTS = Path(__file__).parent
_ORDER = {"simulation": 0, "projections": 2, "domain": 2}  # others: 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all` leaves nothing out."""
    parser.addoption("--all", action="store_true", help="also run tests marked full, and all examples of properties")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier before test modules are imported, in every worker, and set up what programs inherit."""
    os.environ.pop(tiers.VARIABLE, None)
    if config.getoption("--all"):
        os.environ[tiers.VARIABLE] = "all"
    settings.register_profile("omac", max_examples=tiers.examples(100))
    settings.load_profile("omac")
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:  # a shell without job control starts what is to run beside it so
            signal.signal(number, usual)
    scripts = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != scripts:
        os.environ["PATH"] = os.pathsep.join((scripts, os.environ.get("PATH", os.defpath)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what is dear first and what is cheap last, and deselect what only `--all` runs, unless a test was named.

    Workers steal from each other's ends: what they split there should share no server that each would have to start.
    """
    items.sort(key=lambda item: _ORDER.get(item.path.relative_to(_TESTS).parts[0], 1))
    if config.getoption("--all") or any("::" in word for word in config.args):
        return
    full = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=full)
    items[:] = [item for item in items if not item.get_closest_marker("full")]
