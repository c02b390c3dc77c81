"""Calls that came together, as people see them: one record in the journal, a row for each everywhere else."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from polling import eventually
from real_omac import Omac

from omac.adapters.linux.process_identity import boot_id, start_ticks
from omac.domain.access.access import AccessBatchCompleted, AccessBatchRequested, AccessRequested, accesses_of
from omac.domain.kernel.event import Recorded
from omac.journal.event_kinds import SINCE
from omac.journal.format import BATCHES

CALLERS = 12
OF_ALL = ("--path", "/echo/*")


def call_together(house: Omac) -> list[bytes]:
    """Bring a project online, have several calls come together, and return the beginnings of their answers."""
    serving, project = house.online("shop")
    url = urlsplit(serving.skill(project)["base"])
    line = f"%s {url.path.rstrip('/')}%s HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n"
    callers = [socket.create_connection((url.hostname or "", url.port or 0)) for _ in range(CALLERS)]
    for caller in callers:  # each connection is known before, and at rest
        caller.sendall((line % ("GET", "/status")).encode())
        assert caller.recv(65_536).startswith(b"HTTP/1.1 200")
    serving.process.send_signal(signal.SIGSTOP)  # all requests are there when it goes on
    for number, caller in enumerate(callers):
        caller.sendall((line % ("PUT" if number == 3 else "GET", f"/echo/{number}")).encode())
    serving.process.send_signal(signal.SIGCONT)
    answers = []
    for caller in callers:
        with caller:
            answers.append(caller.recv(65_536)[:12])
    eventually(lambda: len(house.audit("--outcome", "completed", *OF_ALL)) == CALLERS, 10.0, "the ends")
    assert serving.end() == 0
    return answers


@pytest.fixture(scope="module")
def busy(house: Omac) -> Omac:
    """Return a host where several calls have come together: /echo/0 to /echo/11."""
    assert {answer[:9] for answer in call_together(house)} == {b"HTTP/1.1 "}
    return house


def batch(omac: Omac) -> Recorded:
    """Return the record of the requests."""
    (begun,) = omac.events(AccessBatchRequested)
    return begun


def test_they_are_one_record(busy: Omac) -> None:
    """The requests are one record; their ends are few, and name each access once."""
    begun = batch(busy)
    assert sorted(begun.event.path) == sorted(f"/echo/{number}" for number in range(CALLERS))
    ended = [
        access
        for record in busy.events()
        if record.position > begun.position
        for access, _ in accesses_of(record.position, record.event)
    ]
    assert sorted(ended) == sorted(access for access, _ in accesses_of(begun.position, begun.event))
    assert busy.events(AccessBatchCompleted)


def test_the_audit_has_a_row_for_each(busy: Omac) -> None:
    """Each call is a row with its own method, path and answer; `number` tells apart what has one position."""
    rows = busy.audit(*OF_ALL)
    assert len({(row["position"], row["number"]) for row in rows}) == CALLERS
    assert {row["path"] for row in rows} == {f"/echo/{number}" for number in range(CALLERS)}
    assert {row["path"] for row in rows if row["method"] == "PUT"} == {"/echo/3"}
    assert len(busy.audit("--path", "/echo/7")) == 1
    counted = json.loads(busy.ok("audit", *OF_ALL, "--count-by", "skill", "--json"))
    assert counted == {"skill": "echo", "count": CALLERS}


@pytest.mark.parametrize("size", [1, 3, 5])
def test_pages_have_each_row_once(busy: Omac, size: int) -> None:
    """Pages have at most as many rows as were asked for, and each row once, though several ended with one record."""
    whole, _ = page(busy, "start")
    rows, cursor = page(busy, "start", "--page", str(size))
    while (following := page(busy, cursor, "--page", str(size)))[0]:
        assert len(following[0]) <= size
        rows += following[0]
        cursor = following[1]
    assert rows == whole


def page(omac: Omac, after: str, *options: str) -> tuple[list[dict[str, Any]], str]:
    *rows, last = (json.loads(line) for line in omac.ok("audit", "--after", after, "--json", *options).splitlines())
    return rows, last["cursor"]


def test_explained(busy: Omac) -> None:
    """The explanation of the requests has their ends, and that of an end its requests."""
    begun = batch(busy)
    ended = [record.position for record in busy.events(AccessBatchCompleted)]
    assert set(ended) < positions(busy, begun.position)
    assert begun.position in positions(busy, ended[0])


def positions(omac: Omac, position: int) -> set[int]:
    explained = json.loads(omac.ok("audit", "explain", str(position), "--json"))
    return {record["position"] for record in explained["records"]}


def test_exported(busy: Omac, tmp_path: Path) -> None:
    """An export of one call verifies, and has the records of its request and its end; as OCSF, an object for each call
    in them, with the fields of that call alone."""
    key = busy.ok("key", "show").strip()
    busy.ok("export", "--out", str(tmp_path / "plain"), "--path", "/echo/7")
    busy.ok("export", "verify", str(tmp_path / "plain"), "--key", key)
    events = [json.loads(line) for line in (tmp_path / "plain" / "events.jsonl").read_text().splitlines()]
    assert events[0]["kind"] == "access.batch-requested"
    busy.ok("export", "--out", str(tmp_path / "ocsf"), "--format", "ocsf", *OF_ALL)
    objects = [json.loads(line) for line in (tmp_path / "ocsf" / "events.ocsf.jsonl").read_text().splitlines()]
    assert len({entry["metadata"]["uid"] for entry in objects}) == len(objects) == 2 * CALLERS
    begun, ended = (
        {entry["api"]["request"]["uid"]: entry for entry in objects if entry["status_id"] == status}
        for status in (0, 1)
    )
    assert begun.keys() >= ended.keys()
    assert all(entry["http_request"] == begun[uid]["http_request"] for uid, entry in ended.items())
    for entry in objects:  # not the whole record: there are as many objects as that has calls
        own, position = entry["unmapped"]["event"], entry["unmapped"]["position"]
        uid = f"{own.get('request', position)}.{own.get('number', 0)}".removesuffix(".0")
        assert (uid, entry["http_request"]["url"]["path"]) == (
            entry["api"]["request"]["uid"],
            own.get("path", begun[uid]["http_request"]["url"]["path"]),
        )


@pytest.mark.parametrize("policy", ["*.path", "access.requested.path", "access.requested", "access"])
def test_redacted(busy: Omac, tmp_path: Path, policy: str) -> None:
    """An export without paths, or without requests, has no path of them, by the words that mean a single one."""
    key = busy.ok("key", "show").strip()
    busy.ok("export", "--out", str(tmp_path / "closed"), "--kind", "access", "--redact", policy)
    busy.ok("export", "verify", str(tmp_path / "closed"), "--key", key)
    assert not [name for name in files(tmp_path / "closed") if b"/echo/7" in name.read_bytes()]


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


@pytest.mark.full
def test_erased(busy: Omac) -> None:
    """After an erasure of the project the calls are on record, and their paths are not. Comes last."""
    busy.ok("erase", str(busy.root / "shop"), "--yes")
    rows: Sequence[dict[str, Any]] = busy.audit("--kind", "access")
    assert {(row["path"], row["skill"], row["outcome"]) for row in rows} == {("(erased)", "echo", "completed")}
    assert sorted(row["method"] for row in rows) == ["GET"] * (2 * CALLERS - 1) + ["PUT"]
    assert json.loads(busy.ok("audit", "verify", "--json"))["findings"] == []


def test_beside_an_earlier_omac_each_has_a_record_of_its_own(omac: Omac) -> None:
    """While an omac is at work that would misread a record of several calls, all are answered, and each has its own."""
    omac.approved("another")  # which makes the journal
    older = SINCE[BATCHES] - 1
    with contextlib.closing(sqlite3.connect(omac.state / "journal.db")) as journal, journal:
        row = ("earlier", os.getpid(), start_ticks(os.getpid()), boot_id(), "0.0.1", older)
        journal.execute(
            "INSERT INTO opened (run, pid, start_ticks, boot_id, version, schema) VALUES (?,?,?,?,?,?)", row
        )
    assert set(call_together(omac)) == {b"HTTP/1.1 200"}
    assert not omac.events(AccessBatchRequested) + omac.events(AccessBatchCompleted)
    paths = [record.event.path for record in omac.events(AccessRequested)]
    assert sorted(path for path in paths if path != "/status") == sorted(f"/echo/{number}" for number in range(CALLERS))
