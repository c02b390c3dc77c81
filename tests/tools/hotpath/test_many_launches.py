"""Launches and nothing else, for weeks: what they record does not wait in the spool for good."""

import pytest
from real_omac import Omac

from omac.domain.sandbox.launch import LaunchRequested
from omac.tools.compose.sandbox_ports import SPOOLED_MAX

PER_LAUNCH = 3  # records


def launched_often(omac: Omac, launches: int) -> None:
    """Launch once, and have the spool hold the records of as many launches as if each had been made."""
    omac.ok("sandbox", "run", "--", "true", cwd=omac.project("shop"))
    spool = omac.state / "spool"
    records = sorted(spool.iterdir())
    assert len(records) == PER_LAUNCH
    id_ = records[0].name.partition("-")[2].partition(".")[0]
    for number in range(launches - 1):
        for record in records:
            copy = spool / record.name.replace(id_, f"{number:016x}")
            copy.write_text(record.read_text().replace(id_, f"{number:016x}"))
            copy.chmod(0o600)


@pytest.mark.full
def test_the_spool_is_relieved(omac: Omac) -> None:
    """The launch that finds hundreds of others in the spool has them recorded; it prints nothing, and its own status
    stays."""
    launched_often(omac, SPOOLED_MAX // PER_LAUNCH)
    done = omac.run("sandbox", "run", "--", "sh", "-c", "exit 7", cwd=omac.root / "shop")
    assert (done.status, done.out, done.err) == (7, "", "")
    assert list((omac.state / "spool").iterdir()) == []
    assert len(omac.events(LaunchRequested)) == SPOOLED_MAX // PER_LAUNCH + 1
    omac.ok("sandbox", "run", "--", "true", cwd=omac.root / "shop")
    assert len(list((omac.state / "spool").iterdir())) == PER_LAUNCH


@pytest.mark.full
def test_a_spool_that_cannot_be_relieved(omac: Omac) -> None:
    """A journal that takes nothing keeps no launch from ending as it does. The next command that needs it reports it,
    and the records wait."""
    launched_often(omac, SPOOLED_MAX // PER_LAUNCH)
    (omac.state / "journal.db").write_text("no journal\n" * 1000)
    done = omac.run("sandbox", "run", "--", "sh", "-c", "exit 7", cwd=omac.root / "shop")
    assert (done.status, done.out, done.err) == (7, "", "")
    assert len(list((omac.state / "spool").iterdir())) == SPOOLED_MAX + PER_LAUNCH
    assert omac.run("status").status == 10
