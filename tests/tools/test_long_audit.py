"""`omac audit` of a journal that is long enough for an index: pages by cursors, and rows that are followed."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from real_omac import Omac
from tools.test_snapshots import called_often

CALLS = 3_000


@pytest.fixture(scope="module")
def busy(house: Omac) -> Omac:
    """A host with a journal of more than 5,000 events, partly sealed."""
    house.approved("shop")
    called_often(house, CALLS // 2)
    house.ok("checkpoint")
    house.ok("journal", "seal")
    called_often(house, CALLS // 2)
    return house


def page(omac: Omac, *options: str) -> tuple[list[dict[str, object]], str]:
    *rows, last = [json.loads(line) for line in omac.ok("audit", "--json", *options).splitlines()]
    return rows, last["cursor"]


@pytest.mark.parametrize("options", [(), ("--skill", "echo"), ("--kind", "segment"), ("--path", "/nowhere")])
def test_pages(busy: Omac, options: tuple[str, ...]) -> None:
    """Pages hold each row once, and the same rows as one page of all, though rows are appended between two pages."""
    rows, cursor = page(busy, "--after", "start", "--page", "700", *options)
    called_often(busy, 5)
    while following := page(busy, "--after", cursor, "--page", "700", *options):
        if not following[0]:
            break
        rows, cursor = rows + following[0], following[1]
    assert rows == page(busy, "--after", "start", *options)[0]
    assert len({row["position"] for row in rows}) == len(rows)
    for file in (busy.state / "journals").glob("*.audit*"):
        file.unlink()
    assert rows == page(busy, "--after", "start", *options)[0]


def test_only_what_is_new_is_read(busy: Omac) -> None:
    """A missing segment does not disturb a query for the rows behind it."""
    rows, cursor = page(busy, "--after", "start")
    assert len(rows) > CALLS
    (segment,) = (busy.state / "journal.db.segments").iterdir()
    aside = segment.rename(segment.with_suffix(".aside"))
    try:
        called_often(busy, 3)
        assert len(page(busy, "--after", cursor)[0]) == 3
    finally:
        aside.rename(segment)


def test_followed(busy: Omac) -> None:
    """The rows behind a cursor are followed by those that end from now on, each with its own cursor."""
    _, cursor = page(busy, "--after", "start")
    called_often(busy, 2)
    following = busy.start("audit", "--after", cursor, "--follow", "--json")
    lines = [json.loads(following.line()) for _ in range(2)]
    called_often(busy, 2)
    lines += [json.loads(following.line()) for _ in range(2)]
    following.end()
    rows, _ = page(busy, "--after", cursor)
    assert [line | {"cursor": ""} for line in lines] == [row | {"cursor": ""} for row in rows]
    assert page(busy, "--after", lines[1]["cursor"])[0] == rows[2:]


def index(omac: Omac, *statements: str) -> str:
    """Make the index of the audit, change it behind omac's back, and return its path."""
    page(omac, "--after", "start", "--skill", "echo")
    (path,) = (omac.state / "journals").glob("*.audit")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return str(path)


@pytest.mark.parametrize(
    "statement", ["DELETE FROM row WHERE number = 2560", "UPDATE row SET skill = 'other' WHERE number = 2560"]
)
def test_an_index_that_was_forged(busy: Omac, statement: str) -> None:
    """The check of a sound journal names an index that says what its events do not, and the command that mends it."""
    path = index(busy, statement)
    done = busy.run("journal", "check")
    assert (done.status, f"the index of the audit {path} is not what the events give" in done.out) == (10, True), done
    assert f"  try: rm {path}\n" in done.err
    Path(path).unlink()
    index(busy)
    assert busy.run("journal", "check").status == 0


@pytest.mark.parametrize("change", ["row SET body = x'c1' WHERE number = 2560", "progress SET state = x'00'"])
def test_an_index_that_is_damaged(busy: Omac, change: str) -> None:
    """Rows and states of an index that cannot be decoded are as if it were not there: it is made again."""
    rows = page(busy, "--after", "start", "--skill", "echo")
    index(busy, f"UPDATE {change}")
    assert busy.run("journal", "check").status == (10 if "row" in change else 0)
    assert page(busy, "--after", "start", "--skill", "echo") == rows
    assert busy.run("journal", "check").status == 0
