"""Exports in standard formats: OCSF is valid by its published schema, Parquet by its reader."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.compute
import pyarrow.parquet
import pytest
from contract.commands import stream_of
from journal.test_codec import GOLDEN
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema
from polling import eventually
from real_omac import Omac, curl
from tools.test_snapshots import called_often

import omac.tools.terminal
from omac.domain.aggregates import AGGREGATES
from omac.domain.kernel.event import Event, Recorded
from omac.journal.bundle import LeafContent
from omac.projections.evidence.changes import TrustChanges
from omac.tools.terminal import ocsf

SCHEMAS = Path(omac.tools.terminal.__path__[0]) / "ocsf_schema"
CLASSES = {"api_activity": 6003, "process_activity": 1007}
PEAK_MIB_MAX = 200


@pytest.fixture(scope="module")
def used(house: Omac) -> Omac:
    """Return a host with many kinds of events that omac records."""
    project = house.approved("shop", "echo", "other")
    assert house.run("start", "--workdir", str(project), "--", "sh", "-c", "exit 3").status == 3
    serving = house.serve()
    manifest = serving.activate(project)
    base = manifest["skills"][0]["base"]
    for method in ("GET", "POST", "PURGE"):
        assert curl("-X", method, f"{base}/echo/=1+1").status in (200, 404, 405, 501)
    assert curl(f"{base.rsplit('/', 2)[0]}/nowhere/x").status >= 400
    house.ok("revoke", "other", "--workdir", str(project))
    eventually(lambda: house.audit(), 10.0, "accesses")
    assert serving.end() == 0
    return house


def objects(omac: Omac, folder: Path, *options: str) -> list[dict[str, Any]]:
    omac.ok("export", "--out", str(folder), "--format", "ocsf", *options)
    return [json.loads(line) for line in (folder / "events.ocsf.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def validators() -> dict[int, jsonschema.Draft202012Validator]:
    """Return the validators of the shipped schemas, by class."""
    return {
        uid: jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))
        for name, uid in CLASSES.items()
    }


@pytest.mark.parametrize("name", CLASSES)
def test_the_shipped_schema_is_the_published_one(name: str) -> None:
    """The shipped schema equals the one in OCSF's own export of that version, and its licence is beside it."""
    published = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=ocsf.SCHEMA_VERSION))
    schema = published.get_class_schema(class_name=name, profiles=[])
    assert json.loads((SCHEMAS / f"{name}.json").read_text()) == json.loads(json.dumps(schema))
    assert "Apache License" in (SCHEMAS / "LICENSE").read_text()


@pytest.mark.full
def test_every_object_is_valid(
    used: Omac, tmp_path: Path, validators: dict[int, jsonschema.Draft202012Validator]
) -> None:
    """An export as OCSF has an object for each event; both classes occur, and every object is valid by its schema."""
    entries = objects(used, tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert [entry["metadata"]["sequence"] for entry in entries] == list(range(1, manifest["events"] + 1))
    assert {entry["class_uid"] for entry in entries} == set(CLASSES.values())
    for entry in entries:
        problems = [problem.message for problem in validators[entry["class_uid"]].iter_errors(entry)]
        assert not problems, (entry["message"], problems)
    assert list(validators[entries[0]["class_uid"]].iter_errors(entries[0] | {"surplus": 1})), "the check can fail"


def test_an_access_says_who_called_what(used: Omac, tmp_path: Path) -> None:
    """The OCSF objects of an access's beginning and end name the same skill and request.

    A method that OCSF does not know becomes an operation, and a refusal a failure with its reason.
    """
    entries = objects(used, tmp_path / "bundle", "--kind", "access")
    begun, ended = (
        entry
        for entry in entries
        if entry["api"].get("request", {}).get("uid") == str(entries[0]["metadata"]["sequence"])
    )
    assert begun["api"]["service"] == ended["api"]["service"] == {"name": "echo"}
    assert begun["http_request"] == ended["http_request"]
    assert (begun["type_uid"], begun["status_id"]) == (600302, 0)
    assert ended["http_response"]["code"] == int(ended["status_code"])
    assert ended["status_id"] == (1 if ended["http_response"]["code"] < 400 else 2)
    purged = [entry for entry in entries if entry["api"]["operation"] == "PURGE"]
    assert {entry["type_uid"] for entry in purged} == {600399}
    assert not any("http_method" in entry["http_request"] for entry in purged)
    refused = [entry for entry in entries if entry["message"] == "access.refused"]
    assert refused
    assert all((entry["severity_id"], entry["status_id"]) == (3, 2) and entry["status_detail"] for entry in refused)


def test_a_program_is_a_process(used: Omac, tmp_path: Path) -> None:
    """The OCSF object of a program has its command line, its pid and its exit code."""
    processes = {entry["message"]: entry for entry in objects(used, tmp_path / "bundle") if entry["class_uid"] == 1007}
    assert processes["sandbox.launch-requested"]["process"]["cmd_line"] == "/usr/bin/sh -c 'exit 3'"
    assert processes["sandbox.launched"]["activity_name"] == "Launch"
    assert processes["sandbox.launched"]["process"]["pid"] > 1
    assert (processes["sandbox.exited"]["activity_id"], processes["sandbox.exited"]["exit_code"]) == (2, 3)
    assert processes["sidecar.started"]["process"]["name"] in ("echo", "other")
    assert processes["sandbox.exited"]["device"] == processes["sidecar.started"]["device"]


@pytest.mark.parametrize(("kind", "event"), [(kind, event) for kind, event, _ in GOLDEN])
def test_what_the_audit_calls_refused_has_failed(kind: str, event: Event) -> None:
    """Each kind of event that the audit lists as done or refused is a success or a failure, with all that it counts."""
    (aggregate,) = [aggregate for aggregate in AGGREGATES if type(event) in aggregate.events]
    stream = stream_of(aggregate, "name")
    change = TrustChanges().of(Recorded(1, stream, None, 1, "run", "omac", None, None, event))
    content = LeafContent(1, stream, None, kind, 1, "run", "omac", None, None, None, None, b"")
    for written in ocsf.OcsfObjects("journal").of(content, event, {}):
        if change is not None:
            assert written["status_id"] == (ocsf.FAILURE if change.refused else ocsf.SUCCESS)
            assert (written["severity_id"] > ocsf.INFORMATIONAL) == change.refused
        assert written.get("count", 1) == getattr(event, "count", 1)


@pytest.mark.full
def test_what_is_left_out_has_no_object(used: Omac, tmp_path: Path) -> None:
    """A redacted event has no OCSF object, whose class would need a time."""
    entries = objects(used, tmp_path / "bundle", "--redact", "access")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert len(entries) == manifest["events"] - manifest["without_content"] > 0
    assert not any(entry["message"].startswith("access.") for entry in entries)


def test_a_table_for_readers_of_parquet(used: Omac, tmp_path: Path) -> None:
    """An event has a row in the Parquet table, in order, with columns to choose by; a redacted one has no content."""
    folder = tmp_path / "bundle"
    used.ok("export", "--out", str(folder), "--format", "parquet", "--redact", "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["writer"] == f"pyarrow {pyarrow.__version__}"
    table = pyarrow.parquet.read_table(folder / "events.parquet")
    assert table.column("position").to_pylist() == list(range(1, manifest["events"] + 1))
    assert pyarrow.compute.sum(table.column("redacted")).as_py() == manifest["without_content"] > 0
    rows = [row for row in table.to_pylist() if row["kind"] == "access.requested"]
    assert rows
    assert {(row["skill"], row["method"]) for row in rows} == {("echo", "GET"), ("echo", "POST"), ("echo", "PURGE")}
    assert all(json.loads(row["event"])["path"] == row["path"] for row in rows)
    assert rows[0]["at"].tzinfo is not None
    events = {row["kind"]: (row["dir"], json.loads(row["event"])) for row in table.to_pylist() if row["event"]}
    for kind in ("sandbox.launch-requested", "skill.registered"):
        dir_, event = events[kind]
        assert dir_ == event["workdir"] != "", "the column to choose by has it, whatever the event calls it"


def test_when_it_happened_is_in_each_form(used: Omac, tmp_path: Path) -> None:
    """The time of an event that happened before it was recorded is in a CSV, as in the other forms."""
    for form in ("jsonl", "csv"):
        used.ok("export", "--out", str(tmp_path / form), "--format", form, "--kind", "sandbox")
    lines = [json.loads(line) for line in (tmp_path / "jsonl" / "events.jsonl").read_text().splitlines()]
    with (tmp_path / "csv" / "events.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["happened"] for row in rows] == [line.get("happened", "") for line in lines]
    assert any(row["happened"] for row in rows if row["kind"] == "sandbox.launch-requested")


def test_without_what_writes_parquet(used: Omac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export as Parquet without pyarrow names the package to install and is not recorded.

    A bundle with Parquet can still be verified.
    """
    folder = tmp_path / "bundle"
    used.ok("export", "--out", str(folder), "--format", "parquet", "--kind", "access")
    monkeypatch.setattr("omac.tools.terminal.parquet.writer", lambda: "")
    before = len(used.audit("--kind", "export"))
    done = used.run("export", "--out", str(tmp_path / "other"), "--format", "parquet")
    assert (done.status, "try: uv tool install '.[parquet]'\n" in done.err) == (4, True), done
    assert len(used.audit("--kind", "export")) == before
    assert not (tmp_path / "other").exists()
    done = used.run("export", "verify", str(folder), "--key", used.ok("key", "show").strip())
    assert (done.status, "events verified" in done.out) == (0, True), done


@pytest.mark.full
def test_memory_does_not_grow_with_the_events(omac: Omac, tmp_path: Path) -> None:
    """An export of a hundred thousand events as Parquet needs little memory."""
    omac.approved("shop")
    called_often(omac, 100_000)
    script = (
        "import os, sys; from omac.tools.main import main\n"
        "assert main(sys.argv[1:], os.environ, sys.stdin, sys.stdout, sys.stderr) == 0\n"
        "(peak,) = [line for line in open('/proc/self/status') if line.startswith('VmHWM')]; print(peak)"
    )
    words = ("export", "--out", str(tmp_path / "bundle"), "--format", "parquet")
    done = subprocess.run(
        (sys.executable, "-c", script, *words), env=omac.environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout.split()[-2]) < PEAK_MIB_MAX * 1024
