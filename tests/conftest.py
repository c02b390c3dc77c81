"""The two tiers of a run (`tests/tiers.py`), and the surroundings of programs under test."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tiers
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from real_omac import Omac

_TESTS = Path(__file__).parent
_ORDER = {"simulation": 0, "projections": 2, "domain": 2}  # others: 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`, which leaves no test out, and `--write`, which writes documents again."""
    parser.addoption("--all", action="store_true", help="also run tests marked full, and all examples of properties")
    parser.addoption(
        "--write", action="store_true", help="write documents that tests compare, such as docs/first-day.md"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier before test modules are imported, in every worker, and set the environment of programs."""
    os.environ.pop(tiers.VARIABLE, None)
    if config.getoption("--all"):
        os.environ[tiers.VARIABLE] = "all"
    unhurried = [HealthCheck.too_slow]  # what a machine is busy with beside it is no fault of a strategy
    settings.register_profile("omac", max_examples=tiers.examples(100), deadline=None, suppress_health_check=unhurried)
    settings.load_profile("omac")
    _end_inherited_ignoring()
    os.umask(0o022)  # tests about modes expect it, and other users read what tests write for them; some set their own
    scripts = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != scripts:
        os.environ["PATH"] = os.pathsep.join((scripts, os.environ.get("PATH", os.defpath)))


def _end_inherited_ignoring() -> None:
    """Let programs start with the usual signals, also where nohup(1) or a shell's `&` has them ignored.

    A handler is not handed on. The tests themselves go on ignoring them, but for an interrupt.
    """
    of_python = (signal.SIGPIPE, signal.SIGXFSZ)
    for number in signal.valid_signals() - set(of_python):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else lambda *_: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put expensive tests first and cheap ones last, and deselect those of `--all` only, unless a test was named.

    Workers steal from each other's ends: tests that they split there should share no server that each would start.
    """
    items.sort(key=lambda item: _ORDER.get(item.path.relative_to(_TESTS).parts[0], 1))
    if config.getoption("--all") or any("::" in word for word in config.args):
        return
    full = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=full)
    items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_collection_finish() -> None:
    """Keep the garbage collector from reading all modules again and again, which takes a twentieth of a run."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def omac(tmp_path: Path) -> Iterator["Omac"]:
    """Yield an omac of this test's own; no server runs yet."""
    from real_omac import omac_in  # once the tier is chosen

    with omac_in(tmp_path) as own:
        yield own


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Omac"]:
    """Yield the omac that the tests of a module share."""
    from real_omac import omac_in

    with omac_in(tmp_path_factory.mktemp("house")) as shared:
        yield shared
