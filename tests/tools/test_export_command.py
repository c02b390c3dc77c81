"""`omac export` makes evidence that an auditor verifies on another machine with a public key and nothing else."""

import base64
import csv
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from contract.journals import commit_now
from journal.damage import new_leaves
from polling import eventually
from real_omac import Done, Omac, curl, omac_in, run_here
from tiers import some
from tools.test_snapshots import called_often

from omac.domain.access.access import AccessRequested
from omac.domain.access.export import ExportCreated
from omac.domain.kernel import ids
from omac.domain.kernel.event import Draft
from omac.domain.sandbox import launch
from omac.journal.bundle import digest_of
from omac.journal.bundle_verification import verify_bundle
from omac.journal.checkpoint import VerifierKey, sign, sign_note
from omac.journal.checkpoint import verified as verified_checkpoint
from omac.journal.merkle import MerkleTree, leaf_hash
from omac.journal.opening import open_journal
from omac.tools.compose.exporting import derived
from omac.tools.terminal.version import VERSION

FORMATS = {
    "jsonl": "events.jsonl", "csv": "events.csv", "cloudevents": "events.cloudevents.jsonl",
    "ocsf": "events.ocsf.jsonl", "parquet": "events.parquet",
}  # fmt: skip
INSTALLED = Path(sys.executable).with_name("omac")


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Omac]:
    """Yield a host on which two skills were called, by a path that a spreadsheet would run."""
    with omac_in(tmp_path_factory.mktemp("used")) as house:
        project = house.approved("shop", "echo", "other")
        serving = house.serve()
        for skill in serving.activate(project)["skills"]:
            assert curl(f"{skill['base']}/echo/=1+1").status == 200
        assert serving.end() == 0
        yield house


@pytest.fixture(scope="module")
def key(used: Omac) -> str:
    return used.ok("key", "show").strip()


@pytest.fixture
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of another host."""
    return tmp_path_factory.mktemp("house")


def exported(omac: Omac, folder: Path, *options: str) -> Path:
    omac.ok("export", "--out", str(folder), *options)
    return folder


def verified(folder: Path, key: str, *options: str, program: tuple[str, ...] = ()) -> Done:
    """Verify on a machine that never saw the journal: another home, no state. `program` is one that does it, if any."""
    home = folder.parent / "elsewhere"
    home.mkdir(exist_ok=True)
    words = ("export", "verify", str(folder), "--key", key, *options)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    if program:
        process = subprocess.run((*program, *words), env=environment, cwd=home, capture_output=True, text=True)
        done = Done(process.returncode, process.stdout, process.stderr)
    else:
        done = run_here(words, environment, home)
    assert not any(home.iterdir()), "a verification leaves nothing"
    return done


def test_the_key_that_a_verification_lacks(used: Omac, tmp_path: Path) -> None:
    """A verification without a key proposes one that verifies the export on its host."""
    folder = exported(used, tmp_path / "bundle")
    lacks = used.run("export", "verify", str(folder))
    assert lacks.status == 2
    line = lacks.err.rpartition("  try: ")[2]
    environment = used.environment | {"PATH": f"{INSTALLED.parent}:{used.environment['PATH']}"}
    done = subprocess.run(["sh", "-c", line], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "events verified" in done.stdout) == (0, True), done


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_verifies_elsewhere(used: Omac, key: str, tmp_path: Path, form: str) -> None:
    """An export in each format has all events, verifies on another machine, and is readable only by its owner."""
    folder = exported(used, tmp_path / "bundle", "--format", form)
    assert sorted(os.listdir(folder)) == sorted(
        ["checkpoint.txt", "evidence.jsonl", "gaps.jsonl", "manifest.json", "manifest.sig", FORMATS[form]]
    )
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    done = verified(folder, key, program=(str(INSTALLED),))
    assert (done.status, done.err) == (0, ""), done
    manifest = json.loads((folder / "manifest.json").read_text())
    assert f"{manifest['events']} events verified, of the {manifest['size']}" in done.out
    report = json.loads(verified(folder, key, "--json").out)
    assert (report["events"], report["root"], report["findings"]) == (manifest["events"], manifest["root"], [])


def test_what_readers_get(used: Omac, tmp_path: Path) -> None:
    """An export has the same events in each format, and no cell of the CSV is a formula."""
    kinds = [used_kind(used, position) for position in (1, 2)]
    lines = (exported(used, tmp_path / "j") / "events.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["kind"] for record in records[:2]] == kinds
    assert any(record["event"].get("path") == "/echo/=1+1" for record in records)
    with (exported(used, tmp_path / "c", "--format", "csv") / "events.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows[: len(records)]] == [record["kind"] for record in records]
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    text = (exported(used, tmp_path / "e", "--format", "cloudevents") / "events.cloudevents.jsonl").read_text()
    event = json.loads(text.splitlines()[0])
    assert (event["specversion"], event["id"], event["type"]) == ("1.0", "1", f"omac.{kinds[0]}")


def used_kind(omac: Omac, position: int) -> str:
    with closing(sqlite3.connect(omac.state / "journal.db")) as connection:
        query = "SELECT text FROM event JOIN name ON name.id = kind WHERE position = ?"
        (kind,) = connection.execute(query, (position,)).fetchone()
    return str(kind)


def test_who_took_it_is_on_record(used: Omac, tmp_path: Path) -> None:
    """The audit has a row for each export, with its filters and its folder."""
    exported(used, tmp_path / "bundle", "--format", "csv", "--skill", "echo", "--redact", "secret")
    row = used.audit("--kind", "export")[-1]
    assert (row["kind"], row["actor"], row["outcome"]) == ("export.created", "person", "done")
    assert "events of skill echo as csv" in row["detail"]
    assert str(tmp_path / "bundle") in row["detail"]


def test_filters_choose_rows_of_the_audit(used: Omac, key: str, tmp_path: Path) -> None:
    """An export by filters has the events that begin and end each row, and only hashes of the others."""
    rows = used.audit("--kind", "access", "--skill", "echo")
    folder = exported(used, tmp_path / "bundle", "--kind", "access", "--skill", "echo")
    records = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [record["kind"] for record in records] == ["access.requested", "access.completed"] * len(rows)
    assert [record["position"] for record in records][::2] == [row["position"] for row in rows]
    assert b"other" not in (folder / "evidence.jsonl").read_bytes()
    done = verified(folder, key)
    assert (done.status, "filters: skill echo, kind access" in done.out) == (0, True), done
    folder = exported(used, tmp_path / "of no skill", "--skill", "")
    assert "filters: skill ''\n" in verified(folder, key).out


@pytest.mark.parametrize(
    ("options", "stated", "count"),
    [
        (("--status", "2xx", "--method", "get"), {"status": "200-299", "method": "get"}, 2),
        (("--status", "404"), {"status": "404"}, 0),
        (("--path", "/echo/*1", "--skill", "echo"), {"path": "/echo/*1", "skill": "echo"}, 1),
        (("--run", "0123456789ab"), {"run": "0123456789ab"}, 0),
        (("--client", "", "--skill", "echo"), {"client": "", "skill": "echo"}, 2),
        (("--client", "claude"), {"client": "claude"}, 0),
        (("--path", "/elsewhere"), {"path": "/elsewhere"}, 0),
        (("--kind", "access", "--text", "OTHER"), {"kind": "access", "text": "OTHER"}, 1),
    ],
)
def test_every_filter_is_stated_as_it_is_typed(
    used: Omac, key: str, tmp_path: Path, options: tuple[str, ...], stated: dict[str, str], count: int
) -> None:
    """The manifest and the record of an export have its filters as they were typed; the filters choose its events."""
    folder = exported(used, tmp_path / "bundle", *options)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["filters"], manifest["events"]) == (stated, 2 * count)
    assert used.events(ExportCreated)[-1].event.filters == stated
    assert verified(folder, key).status == 0


def test_a_history_that_was_rewritten(omac: Omac, tmp_path: Path) -> None:
    """An export and a proof of events that were changed with their leaves are refused where a checkpoint has them."""
    omac.approved("shop")
    omac.ok("checkpoint")
    exported(omac, tmp_path / "before")
    with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as connection:
        connection.execute("UPDATE event SET at = at - 1 WHERE position = 1")
    new_leaves(omac.state / "journal.db")
    for words in (("export", "--out", str(tmp_path / "after")), ("audit", "prove", "1")):
        done = omac.run(*words)
        assert (done.status, done.out) == (10, ""), done
        assert "are not those of a signed checkpoint: history was rewritten" in done.err
        assert "  try: omac audit verify --journal " in done.err
    assert not (tmp_path / "after").exists()
    assert omac.run("audit", "verify").status == 10


def test_how_far_late_leaves_go_was_changed(omac: Omac, tmp_path: Path) -> None:
    """An export and a proof are refused where a checkpoint contradicts how far late leaves go, which they would sign.
    The verification names that once, however many checkpoints do."""
    omac.approved("shop")
    notes = [omac.ok("checkpoint") for _ in range(2)]
    (tmp_path / "kept").write_text("".join(notes))
    with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as connection:
        connection.execute("UPDATE tree SET late = 2")
    for words in (("export", "--out", str(tmp_path / "after")), ("audit", "prove", "1")):
        done = omac.run(*words)
        assert (done.status, done.out) == (10, ""), done
        assert "leaves came late up to 2, its checkpoint says up to 0" in done.err
    verified = json.loads(omac.run("audit", "verify", "--json", "--checkpoint", str(tmp_path / "kept")).out)
    assert [finding["kind"] for finding in verified["findings"]] == ["tree-altered"]


def test_what_has_not_ended(omac: Omac, tmp_path: Path) -> None:
    """An export by filters has the beginning of each access and launch that is open, as the audit has its row."""
    omac.approved("shop")
    host = ids.HostId((omac.state / "host-id").read_text().strip())
    asked = AccessRequested(str(omac.root / "shop"), "echo", "echo", None, "GET", "/slow")
    program = launch.LaunchRequested(str(omac.root / "shop"), "", "bwrap", "0" * 64, ("true",), "host", 1, 1, "")
    drafts = [
        Draft(ids.access_stream(host), None, asked),
        Draft(ids.sandbox_stream(host, ids.LaunchId("n")), 1, program),
    ]
    with closing(open_journal(str(omac.state / "journal.db"), "busy", time.time_ns)) as journal:
        commit_now(journal, drafts)
    rows = [json.loads(line) for line in omac.ok("audit", "--outcome", "open", "--json").splitlines()]
    text = (exported(omac, tmp_path / "bundle", "--outcome", "open") / "events.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert [record["position"] for record in records] == [row["position"] for row in rows]
    assert [record["kind"] for record in records] == ["access.requested", "sandbox.launch-requested"]


def test_what_is_left_out_is_proven_all_the_same(used: Omac, key: str, tmp_path: Path) -> None:
    """A redacted event is proven without its content, which is in no file of the export."""
    folder = exported(used, tmp_path / "bundle", "--redact", "access,run.started")
    whole = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"=1+1" not in whole
    records = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    redacted = {used_kind(used, record["position"]) for record in records if record.get("redacted")}
    assert redacted == {"run.started", "access.requested", "access.completed"}
    assert redacted.isdisjoint(record.get("kind") for record in records)
    done = verified(folder, key)
    assert (done.status, "without their content: access, run.started" in done.out) == (0, True), done
    refused = used.run("export", "--out", str(tmp_path / "x"), "--redact", "everything")
    assert (refused.status, "--redact takes kinds" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("form", "part"), [("jsonl", 0.5), ("csv", 0.0), ("cloudevents", 1.0), ("ocsf", 0.3), ("parquet", 0.7)]
)
@pytest.mark.full
def test_one_flipped_bit(used: Omac, key: str, tmp_path: Path, form: str, part: float) -> None:
    """A flipped bit in any file of an export makes its verification exit with 10 and name the file or the manifest."""
    folder = exported(used, tmp_path / "bundle", "--format", form, "--kind", "access")
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        at = int((len(content) - 1) * part)
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        done = verified(folder, key)
        assert done.status == 10, (path.name, done)
        assert path.name in done.out or path.name.startswith("manifest"), done
        assert "Traceback" not in done.err
        path.write_bytes(content)
    assert verified(folder, key).status == 0


def test_a_folder_that_is_no_export(used: Omac, key: str, tmp_path: Path) -> None:
    """Verifying a folder that is no export is misuse; an export that lost its manifest counts as changed."""
    folder = tmp_path / "photos"
    for content in (False, True):
        if content:
            (folder / "index.html").write_text("")
        else:
            folder.mkdir()
        done = used.run("export", "verify", str(folder), "--key", key, "--json")
        assert (done.status, done.out) == (2, ""), done
        assert done.err.splitlines() == [
            f"omac: {folder} is no export: it holds no manifest.json, nor another file that omac export makes",
            f"  try: ls -la {folder}",
        ]
    bundle = exported(used, tmp_path / "bundle", "--kind", "access")
    (bundle / "manifest.json").unlink()
    done = used.run("export", "verify", str(bundle), "--key", key)
    assert (done.status, done.out) == (10, "manifest.json: it cannot be read: No such file or directory\n")


def test_a_file_whose_name_is_no_text(used: Omac, key: str, tmp_path: Path) -> None:
    """A verification names a file that does not belong to the export, even if its name is not UTF-8."""
    bundle = exported(used, tmp_path / "bundle", "--kind", "access")
    Path(os.fsdecode(os.fsencode(bundle) + b"/\xff")).write_text("")
    assert used.run("export", "verify", str(bundle), "--key", key).out.startswith("\\udcff: it does not belong")
    done = used.run("export", "verify", str(bundle), "--key", key, "--json")
    (finding,) = json.loads(done.out)["findings"]
    assert (done.status, os.fsencode(finding["file"])) == (10, b"\xff")


@pytest.mark.full
@pytest.mark.parametrize("name", some(["gaps.jsonl", "manifest.sig", "checkpoint.txt", "manifest.json"], of=4))
def test_each_bit(used: Omac, key: str, tmp_path: Path, name: str) -> None:
    """An export with any single bit of a small file changed does not verify."""
    folder = exported(used, tmp_path / "bundle", "--kind", "access")
    content = (folder / name).read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        (folder / name).write_bytes(changed)
        assert verify_bundle(str(folder), [VerifierKey.parse(key)], derived).flaws, bit
    (folder / name).write_bytes(content)
    assert not verify_bundle(str(folder), [VerifierKey.parse(key)], derived).flaws


def resigned(omac: Omac, folder: Path, change: Any) -> None:
    """Change the manifest and its files as a thief of the signing key could, and sign the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    for name, entry in manifest["files"].items():
        content = (folder / name).read_bytes()
        entry["bytes"], entry["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    name = (folder / "checkpoint.txt").read_text().splitlines()[-1].split()[1]
    seed = bytes.fromhex((omac.state / "signing.key").read_text())
    (folder / "manifest.sig").write_text(sign_note(digest_of(text), name, seed))


@pytest.mark.full
@pytest.mark.parametrize(
    ("field", "value", "version"), [("omac", "0.0.9", "0.0.9"), ("format", "omac-export-1", VERSION)]
)
def test_data_of_another_version_are_said_to_be_uncompared(
    used: Omac, key: str, tmp_path: Path, field: str, value: str, version: str
) -> None:
    """The verification reports data that it cannot derive, such as those of an earlier form, which may say anything
    that the signer wants."""
    folder = exported(used, tmp_path / "bundle", "--redact", "secret")
    assert "not compared" not in verified(folder, key).out
    assert json.loads(verified(folder, key, "--json").out)["uncompared"] == ""

    def change(manifest: dict[str, Any]) -> None:
        manifest[field] = value
        path = folder / "events.jsonl"
        path.write_bytes(path.read_bytes().replace(b"GET", b"PUT"))

    resigned(used, folder, change)
    done = verified(folder, key)
    assert done.status == 0
    assert f"events.jsonl was not compared with the evidence: omac {version} made it, not this one" in done.out
    assert json.loads(verified(folder, key, "--json").out)["uncompared"] == "events.jsonl"


@pytest.mark.full
@pytest.mark.parametrize(
    ("what", "named", "why"),
    [
        ("an event is edited", "evidence.jsonl", "does not lead to the root"),
        ("an event is left out", "evidence.jsonl", "comes after"),
        ("two are swapped", "evidence.jsonl", "comes after"),
        ("a gap changes", "gaps.jsonl", "no perfect subtree"),
        ("the data says something else", "events.jsonl", "does not say what the evidence says"),
        ("a file more", "more.txt", "does not belong"),
        ("fewer are stated", "evidence.jsonl", "not as many"),
        ("a part is the whole", "evidence.jsonl", "states no filter"),
        ("another tree", "checkpoint.txt", "of another tree"),
        ("a later form", "manifest.json", "this omac knows"),
    ],
)
def test_with_the_key_stolen(used: Omac, key: str, tmp_path: Path, what: str, named: str, why: str) -> None:
    """A thief of the signing key can sign a manifest, but cannot derive the checkpoint's root from other events."""
    folder = exported(used, tmp_path / "bundle", "--kind", "access")
    evidence = (folder / "evidence.jsonl").read_text().splitlines(keepends=True)
    gaps = (folder / "gaps.jsonl").read_text().splitlines(keepends=True)

    def change(manifest: dict[str, Any]) -> None:
        match what:
            case "an event is edited":
                line = json.loads(evidence[0])
                content = base64.b64decode(line["content"]).replace(b"echo", b"evil", 1)
                line["content"] = base64.b64encode(content).decode()
                (folder / "evidence.jsonl").write_text("".join([json.dumps(line) + "\n", *evidence[1:]]))
            case "an event is left out":
                (folder / "evidence.jsonl").write_text("".join(evidence[1:]))
                manifest["events"] -= 1
            case "two are swapped":
                (folder / "evidence.jsonl").write_text("".join([evidence[1], evidence[0], *evidence[2:]]))
            case "a gap changes":
                line = json.loads(gaps[0])
                (folder / "gaps.jsonl").write_text(json.dumps(line | {"leaves": 3}) + "\n")
            case "the data says something else":
                path = folder / "events.jsonl"
                path.write_bytes(path.read_bytes().replace(b"GET", b"PUT"))
            case "a file more":
                (folder / "more.txt").write_text("hello")
            case "fewer are stated":
                manifest["events"] -= 1
            case "a part is the whole":
                manifest["filters"] = {}
            case "another tree":
                manifest["size"] += 1
            case _:
                manifest["format"] = "omac-export-3"

    resigned(used, folder, change)
    done = verified(folder, key)
    assert done.status == 10, done
    assert any(line.startswith(named) and why in line for line in done.out.splitlines()), done


def test_history_that_is_rewritten_with_the_key(used: Omac, key: str, tmp_path: Path) -> None:
    """A checkpoint among the events of an export without filters betrays a thief who signs another history."""
    used.ok("checkpoint")
    folder = exported(used, tmp_path / "bundle")
    evidence = [json.loads(line) for line in (folder / "evidence.jsonl").read_text().splitlines()]
    gaps = [json.loads(line) for line in (folder / "gaps.jsonl").read_text().splitlines()]
    content = base64.b64decode(evidence[2]["content"])
    evidence[2]["content"] = base64.b64encode(content.replace(b"shop", b"shoq")).decode()
    assert content != base64.b64decode(evidence[2]["content"])
    tree = MerkleTree()
    for line in evidence:
        tree.append(leaf_hash(base64.b64decode(line["content"])))
    for gap in gaps:
        tree.append_subtree(base64.b64decode(gap["root"]), gap["leaves"])
    (folder / "evidence.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evidence))
    name = (folder / "checkpoint.txt").read_text().splitlines()[-1].split()[1]
    seed = bytes.fromhex((used.state / "signing.key").read_text())
    checkpoint = verified_checkpoint((folder / "checkpoint.txt").read_text(), VerifierKey.parse(key))
    forged = sign(checkpoint._replace(root=tree.root()), name, seed)
    (folder / "checkpoint.txt").write_text(forged)
    resigned(used, folder, lambda manifest: manifest.update(root=tree.root().hex(), omac="0.0.9"))
    done = verified(folder, key)
    assert done.status == 10, done
    assert "history was rewritten" in done.out, done


@pytest.mark.full
@pytest.mark.parametrize("name", ["evidence.jsonl", "events.jsonl", "gaps.jsonl", "checkpoint.txt", "manifest.json"])
def test_a_file_that_is_huge(used: Omac, key: str, tmp_path: Path, name: str) -> None:
    """A verification refuses a huge file without reading all of it, which would take hours."""
    folder = exported(used, tmp_path / "bundle")
    os.truncate(folder / name, 1 << 40)
    done = verified(folder, key)
    assert (done.status, name in done.out) == (10, True), done


def test_how_many_events_are_exported(used: Omac, tmp_path: Path) -> None:
    """An export without a filter has all events but its own record, and reports how many it has."""
    whole = used.ok("export", "--out", str(tmp_path / "whole")).splitlines()[0]
    events = json.loads((tmp_path / "whole" / "manifest.json").read_text())["events"]
    assert whole == f"{tmp_path}/whole: {events} events, all before this export, exported as jsonl"
    some = used.ok("export", "--out", str(tmp_path / "some"), "--kind", "access").splitlines()[0]
    assert some == f"{tmp_path}/some: 4 of {events + 2} events exported as jsonl"
    none = used.run("export", "--out", str(tmp_path / "none"), "--skill", "ehco")
    assert (none.status, ": 0 of " in none.out) == (0, True), none
    assert none.err == "  try: omac audit --count-by skill  # the values that events have\n"


def test_a_name_that_cannot_be_recorded(used: Omac, tmp_path: Path) -> None:
    """An export to a folder whose name is not UTF-8 is misuse and writes no file."""
    done = used.run("export", "--out", str(tmp_path / os.fsdecode(b"\xff")))
    assert (done.status, "UTF-8" in done.err, "--out NEW" in done.err) == (2, True, True), done
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_by_another_key(used: Omac, house: Path, tmp_path: Path) -> None:
    """An export does not verify by the key of another host; a malformed key and a missing folder are misuse."""
    folder = exported(used, tmp_path / "bundle")
    with omac_in(house) as another:
        another.approved("shop")
        foreign = another.ok("key", "show").strip()
    done = verified(folder, foreign)
    assert (done.status, "has not signed this bundle" in done.out) == (10, True), done
    assert "is not what was exported, or another key signed it\n" in done.err
    assert f"  try: omac export verify {tmp_path / 'bundle'} --key KEY  # that of the key that signed then" in done.err
    assert verified(folder, "x+y+z").status == 2
    assert verified(tmp_path / "nothing", foreign).status == 2


def test_a_place_that_is_taken(used: Omac, tmp_path: Path) -> None:
    """An export to an existing folder or link is refused, writes nothing, and is not recorded."""
    before = len(used.audit("--kind", "export"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("taken", "link"):
        done = used.run("export", "--out", str(tmp_path / name))
        assert (done.status, "exists already" in done.err) == (2, True), done
    done = used.run("export", "--out", str(tmp_path / "none/deeper"))
    assert (done.status, "failed" in done.err) == (5, True), done
    assert used.run("export").status == 2
    assert len(used.audit("--kind", "export")) == before
    assert not (tmp_path / "nowhere").exists()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Omac]:
    """Yield a host whose export takes a while."""
    with omac_in(tmp_path_factory.mktemp("busy")) as omac:
        omac.approved("shop")
        called_often(omac, 8_000)
        yield omac


def killed(omac: Omac, folder: Path, size: int, *options: str) -> Path:
    """Kill an export once its evidence has so many bytes, and return its draft."""
    draft = folder.with_name(f".omac-export-{folder.name}")
    evidence = draft / "evidence.jsonl"
    started = omac.start("export", "--out", str(folder), *options)
    eventually(lambda: evidence.exists() and evidence.stat().st_size >= size, 30.0, "the first lines")
    os.kill(started.process.pid, signal.SIGKILL)
    started.process.wait()
    assert (folder.exists(), draft.exists()) == (False, True)
    return draft


@pytest.mark.full
@pytest.mark.parametrize(
    ("form", "sizes"),
    some([(form, (0, 1 << 18, 1 << 20) if form == "jsonl" else (1 << 18,)) for form in FORMATS], of=len(FORMATS)),
)
def test_killed_and_typed_again(busy: Omac, tmp_path: Path, form: str, sizes: tuple[int, ...]) -> None:
    """A killed export leaves no bundle, and the same command goes on with the range of the first start.

    Events that were recorded since are not in it, and it has the same content as an export that was not killed.
    """
    folder, records = tmp_path / "bundle", len(busy.audit("--kind", "export"))
    for size in sizes:
        draft = killed(busy, folder, size, "--format", form)
    progress = json.loads((draft / ".progress.json").read_bytes())
    done = busy.run("export", "--out", str(folder), "--format", form)
    assert (done.status, "was interrupted; it goes on" in done.err) == (0, True), done
    assert not draft.exists()
    assert len(busy.audit("--kind", "export")) == records + 1, "one export is recorded once"
    assert verified(folder, busy.ok("key", "show").strip()).status == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["events"], manifest["size"]) == (progress["head"], progress["size"])
    whole = exported(busy, tmp_path / "whole", "--format", form)
    assert (whole / "evidence.jsonl").read_bytes().startswith((folder / "evidence.jsonl").read_bytes())
    if form != "parquet":
        assert (whole / FORMATS[form]).read_bytes().startswith((folder / FORMATS[form]).read_bytes())


@pytest.mark.full
def test_what_an_agent_does_to_a_draft(busy: Omac, tmp_path: Path) -> None:
    """An export derives changed bytes of its draft again, follows no link there, and refuses an unrecorded range."""
    folder, target = tmp_path / "bundle", tmp_path / "other"
    target.write_bytes(b"mine" * 100_000)
    draft = killed(busy, folder, 1 << 18)
    with (draft / "evidence.jsonl").open("r+b") as file:
        file.write(b"forged")
    (draft / "gaps.jsonl").unlink()
    (draft / "gaps.jsonl").symlink_to(target)
    (draft / "events.jsonl").unlink()
    os.link(target, draft / "events.jsonl")
    (draft / "more").mkdir()
    text = (draft / ".progress.json").read_bytes()
    forged = json.loads(text) | {"events": 3}
    (draft / ".progress.json").write_text(json.dumps(forged))
    done = busy.run("export", "--out", str(folder))
    assert (done.status, "no record of it" in done.err, "rm -r" in done.err) == (2, True, True), done
    (draft / ".progress.json").write_bytes(text)
    exported(busy, folder)
    assert verified(folder, busy.ok("key", "show").strip()).status == 0
    assert target.read_bytes() == b"mine" * 100_000


@pytest.mark.full
def test_other_options_do_not_go_on(busy: Omac, tmp_path: Path) -> None:
    """An export with other options than its draft is refused and the draft stays; with the same options it goes on."""
    folder = tmp_path / "bundle"
    options = ("--since", "7d", "--kind", "access")
    draft = killed(busy, folder, 1 << 16, *options)
    done = busy.run("export", "--out", str(folder), "--kind", "access")
    assert (done.status, "with other options" in done.err, "rm -r" in done.err) == (2, True, True), done
    assert draft.exists()
    assert busy.run("export", "--out", str(folder), "--format", "csv", *options).status == 2
    exported(busy, folder, *options)
    assert verified(folder, busy.ok("key", "show").strip()).status == 0


@pytest.mark.full
def test_two_at_once(house: Path, tmp_path: Path) -> None:
    """A second export to the same folder is refused while the first is at work, and does not harm it."""
    with omac_in(house) as omac:
        omac.approved("shop")
        called_often(omac, 40_000)
        started = omac.start("export", "--out", str(tmp_path / "bundle"))
        eventually(lambda: (tmp_path / ".omac-export-bundle/evidence.jsonl").exists(), 20.0, "the first lines")
        done = omac.run("export", "--out", str(tmp_path / "bundle"))
        assert (done.status != 0, "is at work" in done.err or "exists already" in done.err) == (True, True), done
        assert started.process.wait(60) == 0
        assert verified(tmp_path / "bundle", omac.ok("key", "show").strip()).status == 0


@pytest.mark.parametrize("step", ["open", "stat"])
def test_one_that_has_just_ended(used: Omac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """An export whose draft another one moves to its place, while this one takes it over, reports the other one."""
    target = tmp_path / "out"
    draft = tmp_path / ".omac-export-out"
    draft.mkdir()
    called = getattr(os, step)

    def moved_first(path: Any, *values: Any, **named: Any) -> Any:
        if path == str(draft) and draft.exists():
            draft.rename(target)
        return called(path, *values, **named)

    monkeypatch.setattr(os, step, moved_first)
    done = used.run("export", "--out", str(target))
    assert (done.status, "another export to" in done.err) == (5, True), done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.full
def test_a_full_disk(house: Path, tmp_path: Path) -> None:
    """An export to a full disk reports that and the next step; with more room the same command goes on."""
    with omac_in(house) as omac:
        omac.approved("shop")
        called_often(omac, 10_000)
        small = tmp_path / "small"
        small.mkdir()
        subprocess.run(("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)), check=True)
        try:
            done = omac.run("export", "--out", str(small / "bundle"))
            assert (done.status, "No space left" in done.err, "df -h" in done.err) == (5, True, True), done
            assert os.listdir(small) == [".omac-export-bundle"]
            assert "make room, then type the same command again" in done.err.replace("\n", " ")
            subprocess.run(("mount", "-o", "remount,size=64m", str(small)), check=True)
            exported(omac, small / "bundle")
            assert os.listdir(small) == ["bundle"]
            assert verified(small / "bundle", omac.ok("key", "show").strip()).status == 0
        finally:
            subprocess.run(("umount", str(small)), check=True)


def test_no_export_of_what_was_changed(house: Path, tmp_path: Path) -> None:
    """A journal that was changed cannot be exported."""
    with omac_in(house) as omac:
        omac.approved("shop")
        with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as connection:
            connection.execute("UPDATE event SET at = at + 1 WHERE position = 2")
        done = omac.run("export", "--out", str(tmp_path / "bundle"))
        assert (done.status, "omac audit verify" in done.err) == (10, True), done
        assert not (tmp_path / "bundle").exists()


@pytest.mark.full
def test_options_of_the_subcommand_go_behind_it(used: Omac, tmp_path: Path) -> None:
    """`omac export` refuses options of `verify` that precede it, where they would do nothing."""
    done = used.run("export", "--out", str(tmp_path / "x"), "verify", str(tmp_path / "x"), "--key", "k")
    assert (done.status, "options of verify go behind it" in done.err) == (2, True)
