"""Snapshots: a long journal starts like a short one, and commands print the same with and without them."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from real_omac import Omac, omac_in

from omac.domain.access.access import AccessCompleted, AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft
from omac.journal.opening import open_journal
from omac.services.kernel.restoring import WORTH

AGENT = Cause("agent")


def called_often(omac: Omac, times: int) -> None:
    """Append calls of a skill with their outcomes, as a server would."""
    log = ids.access_stream(ids.HostId((omac.state / "host-id").read_text().strip()))
    with closing(open_journal(str(omac.state / "journal.db"), "busy", time.time_ns)) as journal:
        request = AccessRequested(str(omac.root / "shop"), "echo", "echo", None, "GET", "/x")
        groups = [journal.group((Draft(log, None, request),), journal.envelope(AGENT)) for _ in range(times)]
        ends = [AccessCompleted(records[0].position, 200, 1, 2, 3) for records in journal.commit(groups)]  # type: ignore[index]
        journal.commit([journal.group((Draft(log, None, end),), journal.envelope(AGENT)) for end in ends])


@pytest.fixture(scope="module")
def busy(house: Omac) -> Omac:
    """Return a host whose journal is long enough for snapshots, with an approved skill."""
    house.approved("shop")
    called_often(house, WORTH)
    return house


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a snapshot of another journal."""
    with omac_in(tmp_path_factory.mktemp("foreign")) as house:
        house.approved("shop")
        called_often(house, WORTH)
        told(house)
        yield snapshots(house)[0]


def snapshots(omac: Omac) -> list[Path]:
    return sorted((omac.state / "journals").glob("*.snapshots/*"))


def approvals(omac: Omac, project: Path) -> list[dict[str, str]]:
    """Return the approvals of one directory."""
    every = [json.loads(line) for line in omac.ok("approvals", "--json", cwd=project).splitlines()]
    return [approval for approval in every if approval["scope"] == str(project)]


def told(omac: Omac) -> tuple[str, ...]:
    """Return the output of the commands that read snapshots."""
    position = json.loads(omac.ok("status", "--json"))["position"]
    commands = (("status",), ("replay", "--at", str(position - 100)), ("approvals",), ("list",))
    return tuple(omac.ok(*words, "--json", cwd=omac.root / "shop") for words in commands)


def test_with_and_without(busy: Omac) -> None:
    """The first command leaves a snapshot, and later ones begin there. Without the snapshot, commands print the
    same."""
    first = told(busy)
    paths = snapshots(busy)
    assert paths
    assert told(busy) == first
    shutil.rmtree(paths[0].parent)
    assert told(busy) == first
    assert snapshots(busy) == paths


@pytest.mark.parametrize("damage", ["cut", "edited", "of another journal"])
def test_damaged(busy: Omac, foreign: Path, damage: str) -> None:
    """A damaged or foreign snapshot is ignored without a message: commands answer from the journal."""
    first = told(busy)
    for snapshot in snapshots(busy):
        content = snapshot.read_bytes()
        match damage:
            case "cut":
                snapshot.write_bytes(content[: len(content) // 2])
            case "edited":
                snapshot.write_bytes(content.replace(b"echo", b"evil"))
            case _:
                shutil.copy(foreign, snapshot)
    assert told(busy) == first


def test_a_run_begins_from_it(busy: Omac) -> None:
    """A start on a long journal knows the approvals, and its own events are folded on the snapshot."""
    told(busy)
    done = busy.run("start", "--", "sh", "-c", "curl -sf $OMAC_ECHO_BASE/echo/again", cwd=busy.root / "shop")
    assert done.status == 0, done
    assert json.loads(busy.ok("status", "--json"))["accesses"]["open"] == 0
    before = busy.ok("status", "--json")
    shutil.rmtree(snapshots(busy)[0].parent)
    assert busy.ok("status", "--json") == before


def test_two_at_once(busy: Omac) -> None:
    """Four commands that find no snapshot at once print the same."""
    first = told(busy)
    shutil.rmtree(snapshots(busy)[0].parent)
    started = [busy.start("status", "--json") for _ in range(4)]
    assert {command.process.communicate(timeout=60)[0].decode() for command in started} == {first[0]}
    assert told(busy) == first


@pytest.mark.full
def test_a_forged_approval(busy: Omac) -> None:
    """Commands believe an approval forged into a snapshot. The check of the journal finds that the events do not give
    it, and names the file to delete."""
    projects = {name: busy.project(name, "echo") for name in ("mine", "other")}
    codes = {name: project / ".agents/skills/echo/sidecar.py" for name, project in projects.items()}
    digests = {}
    for name, code in codes.items():
        code.write_text(code.read_text() + f"# {name}\n")
        busy.approve(projects[name], "echo")
        (digests[name],) = (approved["bundle_hash"] for approved in approvals(busy, projects[name]))
    codes["mine"].write_bytes(codes["other"].read_bytes())
    called_often(busy, WORTH)
    told(busy)
    assert [approval["code"] for approval in approvals(busy, projects["mine"])] != ["ok"]
    busy.ok("journal", "check")

    newest = snapshots(busy)[-1]
    snapshot = newest.read_bytes()[64:].replace(digests["mine"].encode(), digests["other"].encode())
    newest.write_bytes(newest.read_bytes()[:32] + sha256(snapshot).digest() + snapshot)
    assert [approval["code"] for approval in approvals(busy, projects["mine"])] == ["ok"]
    checked = busy.run("journal", "check", "--json")
    (finding,) = json.loads(checked.out)["findings"]
    assert (checked.status, finding["position"], finding["remedy"]) == (10, int(newest.name), "snapshot")
    report = busy.run("journal", "check")
    assert f"the snapshot {newest} is not what the events give" in report.out
    assert f"try: rm {newest}" in report.err
    newest.unlink()
    busy.ok("journal", "check")
    assert [approval["code"] for approval in approvals(busy, projects["mine"])] != ["ok"]


@pytest.mark.full
def test_a_copy_that_was_put_back(omac: Omac) -> None:
    """An approval made after the backup does not hold in the restored journal, whatever a snapshot contains."""
    project = omac.project("shop", "echo")
    omac.ok("start", "--", "true", cwd=project)
    called_often(omac, WORTH)
    omac.ok("journal", "backup", str(omac.root / "copy.db"))
    omac.approve(project, "echo")
    called_often(omac, WORTH)
    assert "echo" in omac.ok("approvals", cwd=project)
    omac.ok("journal", "restore", str(omac.root / "copy.db"), "--yes")
    called_often(omac, WORTH)
    assert "echo" not in omac.ok("approvals", cwd=project)
