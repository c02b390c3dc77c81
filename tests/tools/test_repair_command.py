"""`omac journal check` and `omac journal repair`: the report of damage, and the way back to work."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from real_omac import Omac


def spoil(omac: Omac, statement: str) -> None:
    """Change the journal as no part of omac would."""
    with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as connection:
        connection.execute(statement)


@pytest.mark.full
def test_check_beside_a_server_and_no_repair_under_it(omac: Omac) -> None:
    """The check works while a server runs; a repair is refused, because it would change the journal under the
    server."""
    serving, _ = omac.online("shop")
    checked = omac.run("journal", "check")
    assert (checked.status, checked.err) == (0, "")
    assert "nothing is damaged" in checked.out
    refused = omac.run("journal", "repair", "--yes")
    assert refused.status == 5
    assert f"pid {serving.process.pid}" in refused.err
    assert f"try: omac stop {serving.process.pid}" in refused.err
    beside = omac.run("journal", "check", "--json")
    assert json.loads(beside.out)["findings"] == []
    spoil(omac, "UPDATE event SET body = x'ff' WHERE position = 1")
    omac.ok("stop", str(serving.process.pid))  # as proposed: the server answers, whatever the journal holds


def test_from_damage_back_to_work(omac: Omac) -> None:
    """Every command names the way back from damage. After the repair, sound events are as before, and a server starts
    again."""
    project = omac.approved("shop")
    omac.ok("settings", "set", "secrets.store", "vault")
    position = json.loads(omac.ok("journal", "check", "--json"))["position"]
    spoil(omac, f"UPDATE event SET body = x'c1' WHERE position = {position}")
    for command in (("status",), ("audit",), ("replay", "--at", str(position)), ("serve", "--no-inner")):
        done = omac.run(*command)
        assert done.status == 10, (command, done)
        assert "try: omac journal check" in done.err
        assert "try: omac journal repair" in done.err
        assert "Traceback" not in done.err
    checked = omac.run("journal", "check")
    assert checked.status == 10
    assert f"position {position} (setting.changed in setting/" in checked.out
    (finding,) = json.loads(omac.run("journal", "check", "--json").out)["findings"]
    assert (finding["position"], finding["kind"], finding["remedy"]) == (position, "setting.changed", "empty")
    assert f"position {position}" in omac.ok("journal", "repair", "--dry-run")
    refused = omac.run("journal", "repair", "--position", str(position))
    assert refused.status == 2
    assert f"try: omac journal repair --position {position} --yes" in refused.err
    assert omac.run("journal", "check").status == 10
    done = omac.run("journal", "repair", "--position", str(position), "--yes")
    assert done.status == 0, done
    assert omac.run("journal", "check").status == 0
    row = json.loads(omac.ok("audit", "--kind", "position", "--json"))
    assert (row["kind"], row["detail"].partition(" in ")[0]) == (
        "position.set-aside", f"position {position}, setting.changed",
    )  # fmt: skip
    assert "echo" in omac.ok("approvals")
    skills = omac.serve().activate(project)["skills"]
    assert [skill["name"] for skill in skills] == ["echo"]


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (
            "ImportError('gone')",
            "omac: the library that encrypts personal fields cannot be loaded: gone\n  try: omac version",
        ),
        ("MemoryError", "omac: the system refused what omac needs: no memory is left\n  try: ulimit -a"),
        (
            "ImportError('x.so: failed to map segment from shared object')",
            "omac: the system refused what omac needs: no memory is left\n  try: ulimit -a",
        ),
    ],
    ids=["cannot be loaded", "memory", "memory for it"],
)
@pytest.mark.full
def test_a_failure_to_decrypt_is_no_damage(failure: str, reported: str, omac: Omac, tmp_path: Path) -> None:
    """A library that decrypts, and cannot be loaded or runs out of memory, says nothing of the journal: no check
    reports damage, and no repair sets events aside."""
    project = omac.project("shop", "echo")
    assert omac.run("sandbox", "run", "--", "true", cwd=project).status == 0
    omac.approve(project)  # and the launch is in the journal
    library = tmp_path / "cryptography"
    library.mkdir()
    (library / "__init__.py").write_text(f"raise {failure}\n")
    for words in (("journal", "check"), ("journal", "repair", "--yes"), ("status",), ("audit",), ("audit", "verify")):
        done = omac.process(*words, extra={"PYTHONPATH": str(tmp_path)})
        assert done.status in (4, 5), (words, done)
        assert done.err.startswith(reported), (words, done)
        assert "damage" not in done.out + done.err
    assert omac.run("journal", "check").out.endswith("nothing is damaged\n")


def test_keys_that_cannot_be_read_are_no_damage(omac: Omac) -> None:
    """A key that cannot be read is named by every command that needs it; no repair sets aside what it encrypted."""
    project = omac.project("shop", "echo")
    assert omac.run("sandbox", "run", "--", "true", cwd=project).status == 0
    omac.approve(project)
    (key,) = (omac.state / "subjects").iterdir()
    content = key.read_text()
    key.write_text("no key")
    for words in (("journal", "check"), ("journal", "repair", "--yes"), ("status",), ("audit",)):
        refused = omac.run(*words)
        assert refused.status == 5, (words, refused)
        assert refused.err.startswith(f"omac: {key} does not hold keys;"), (words, refused)
        assert "omac journal" not in refused.err
    key.write_text(content)
    assert omac.run("journal", "check").out.endswith("nothing is damaged\n")


def test_a_gap_is_refused_by_every_command(omac: Omac) -> None:
    """Each command refuses a journal with a missing row."""
    project = omac.approved("shop")
    omac.ok("settings", "set", "secrets.store", "vault")
    for statement in (
        "DELETE FROM event WHERE position = 1",
        "DELETE FROM event WHERE position = 2",
        "UPDATE head SET position = position + 2",
    ):
        spoil(omac, statement)
        for command in (("status",), ("audit",), ("approve", "echo", "--revoke", "--workdir", str(project))):
            done = omac.run(*command)
            assert done.status == 10, (statement, command, done)
            assert "try: omac journal check" in done.err
        assert omac.run("journal", "repair", "--yes").status == 0
        assert omac.run("journal", "check").status == 0
        assert omac.run("status").status == 0


def test_nothing_to_check(omac: Omac) -> None:
    """Without a journal, check and repair are refused, and make none."""
    for command in (("check",), ("repair", "--yes")):
        done = omac.run("journal", *command)
        assert done.status == 5, done
        assert "no journal" in done.err
    assert not (omac.state / "journal.db").exists()


def test_a_sound_journal_is_not_repaired(omac: Omac) -> None:
    """A repair leaves a sound journal as it is, and refuses a position that is sound."""
    omac.approved("shop")
    assert "nothing in" in omac.ok("journal", "repair", "--yes")
    done = omac.run("journal", "repair", "--position", "1", "--yes")
    assert done.status == 2
    assert "position 1 is sound" in done.err
    done = omac.run("journal", "repair", "--position", "last", "--yes")
    assert done.status == 2
    assert "--position takes a number, not last" in done.err


def test_an_export_after_a_repair(omac: Omac, tmp_path: Path) -> None:
    """A position that was set aside is exported as its leaf alone, and cannot be proven. Its neighbor is proven, before
    and after the events are sealed."""
    omac.approved("shop")
    for value in ("vault", "keychain", "vault"):
        omac.ok("settings", "set", "secrets.store", value)
    position = json.loads(omac.ok("journal", "check", "--json"))["position"]
    spoil(omac, f"UPDATE event SET body = x'c1' WHERE position = {position - 2}")
    omac.ok("journal", "repair", "--yes")
    key = omac.ok("key", "show").strip()
    for name in ("before", "sealed"):
        folder = tmp_path / name
        manifest = json.loads(omac.ok("export", "--out", str(folder), "--json"))
        assert manifest["without_content"] >= 1
        assert "set aside by a repair" in omac.ok("export", "verify", str(folder), "--key", key)
        refused = omac.run("audit", "prove", str(position - 2))
        assert (refused.status, "was set aside" in refused.err) == (10, True), refused
        omac.ok("audit", "prove", str(position - 3))
        omac.ok("checkpoint")
        omac.ok("journal", "seal")
    omac.ok("settings", "set", "secrets.store", "keychain")
    spoil(omac, "UPDATE event SET at = at + 1 WHERE position = (SELECT max(position) FROM event)")
    refused = omac.run("export", "--out", str(tmp_path / "altered"))
    assert (refused.status, "is not what was recorded" in refused.err) == (10, True), refused


def test_the_record_of_a_repair_is_damaged(omac: Omac) -> None:
    """The record of a repair is repaired like any other event, and still excuses the position that it set aside."""
    omac.approved("shop")
    position = json.loads(omac.ok("journal", "check", "--json"))["position"]
    for damaged in (position, position + 1):
        spoil(omac, f"UPDATE event SET body = x'c1' WHERE position = {damaged}")
        omac.ok("journal", "repair", "--yes")
    verified = json.loads(omac.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["set_aside"]) == ([], [position, position + 1])
