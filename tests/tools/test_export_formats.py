"""What an export says in the forms of others: OCSF by its published schema, Parquet by its reader."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.compute
import pyarrow.parquet
import pytest
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema
from polling import eventually
from real_omac import Omac, curl, omac_in
from tools.test_snapshots import called_often

import omac.tools.terminal
from omac.tools.terminal import ocsf

SCHEMAS = Path(omac.tools.terminal.__path__[0]) / "ocsf_schema"
CLASSES = {"api_activity": 6003, "process_activity": 1007}
PEAK_MIB_MAX = 200


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Omac]:
    """A host on which much of what omac records has happened."""
    with omac_in(tmp_path_factory.mktemp("used")) as house:
        project = house.project("shop", "echo", "other")
        house.approve(project, "echo", "other")
        assert house.run("start", "--workdir", str(project), "--", "sh", "-c", "exit 3").status == 3
        serving = house.serve()
        manifest = serving.activate(project)
        base = manifest["skills"][0]["base"]
        for method in ("GET", "POST", "PURGE"):
            assert curl("-X", method, f"{base}/echo/=1+1").status in (200, 404, 405, 501)
        assert curl(f"{base.rsplit('/', 2)[0]}/nowhere/x").status >= 400
        house.ok("revoke", "other", "--workdir", str(project))
        eventually(lambda: house.audit(), 10.0, "accesses")
        serving.process.terminate()
        assert serving.process.wait(30) == 0
        yield house


def objects(omac: Omac, folder: Path, *options: str) -> list[dict[str, Any]]:
    omac.ok("export", "--out", str(folder), "--format", "ocsf", *options)
    return [json.loads(line) for line in (folder / "events.ocsf.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def validators() -> dict[int, jsonschema.Draft202012Validator]:
    """By class, of the schemas that are shipped."""
    return {
        uid: jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))
        for name, uid in CLASSES.items()
    }


@pytest.mark.parametrize("name", CLASSES)
def test_the_shipped_schema_is_the_published_one(name: str) -> None:
    """As it follows from OCSF's own export of that version; its licence lies beside it."""
    published = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=ocsf.SCHEMA_VERSION))
    wanted = published.get_class_schema(class_name=name, profiles=[])
    assert json.loads((SCHEMAS / f"{name}.json").read_text()) == json.loads(json.dumps(wanted))
    assert "Apache License" in (SCHEMAS / "LICENSE").read_text()


def test_every_object_is_valid(
    used: Omac, tmp_path: Path, validators: dict[int, jsonschema.Draft202012Validator]
) -> None:
    """One for each event, and none that the schema has not; both classes are there."""
    found = objects(used, tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert [one["metadata"]["sequence"] for one in found] == list(range(1, manifest["events"] + 1))
    assert {one["class_uid"] for one in found} == set(CLASSES.values())
    for one in found:
        problems = [problem.message for problem in validators[one["class_uid"]].iter_errors(one)]
        assert not problems, (one["message"], problems)
    assert list(validators[found[0]["class_uid"]].iter_errors(found[0] | {"surplus": 1})), "the check can fail"


def test_an_access_says_who_called_what(used: Omac, tmp_path: Path) -> None:
    """Its end names what its beginning named; a method that OCSF does not know is an operation all the same."""
    found = objects(used, tmp_path / "bundle", "--kind", "access")
    begun, ended = (
        one for one in found if one["api"].get("request", {}).get("uid") == str(found[0]["metadata"]["sequence"])
    )
    assert begun["api"]["service"] == ended["api"]["service"] == {"name": "echo"}
    assert begun["http_request"] == ended["http_request"]
    assert (begun["type_uid"], begun["status_id"]) == (600302, 0)
    assert ended["http_response"]["code"] == int(ended["status_code"])
    assert ended["status_id"] == (1 if ended["http_response"]["code"] < 400 else 2)
    purged = [one for one in found if one["api"]["operation"] == "PURGE"]
    assert {one["type_uid"] for one in purged} == {600399}
    assert not any("http_method" in one["http_request"] for one in purged)
    refused = [one for one in found if one["message"] == "access.refused"]
    assert refused
    assert all((one["severity_id"], one["status_id"]) == (3, 2) and one["status_detail"] for one in refused)


def test_a_program_is_a_process(used: Omac, tmp_path: Path) -> None:
    """With its command line, its pid and how it ended."""
    found = {one["message"]: one for one in objects(used, tmp_path / "bundle") if one["class_uid"] == 1007}
    assert found["sandbox.launch-requested"]["process"]["cmd_line"] == "/usr/bin/sh -c 'exit 3'"
    assert found["sandbox.launched"]["activity_name"] == "Launch"
    assert found["sandbox.launched"]["process"]["pid"] > 1
    assert (found["sandbox.exited"]["activity_id"], found["sandbox.exited"]["exit_code"]) == (2, 3)
    assert found["sidecar.started"]["process"]["name"] in ("echo", "other")
    assert found["sandbox.exited"]["device"] == found["sidecar.started"]["device"]


def test_what_is_left_out_has_no_object(used: Omac, tmp_path: Path) -> None:
    """The evidence has its leaf; a class of OCSF would need a time."""
    found = objects(used, tmp_path / "bundle", "--redact", "access")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert len(found) == manifest["events"] - manifest["without_content"] > 0
    assert not any(one["message"].startswith("access.") for one in found)


def test_a_table_for_readers_of_parquet(used: Omac, tmp_path: Path) -> None:
    """Every event has a row, in order, with columns to choose by; what was left out is a row without content."""
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


def test_without_what_writes_parquet(used: Omac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said what to install, and nothing is recorded; a bundle is verified all the same."""
    folder = tmp_path / "bundle"
    used.ok("export", "--out", str(folder), "--format", "parquet", "--kind", "access")
    monkeypatch.setattr("omac.tools.terminal.parquet.writer", lambda: "")
    before = len(used.audit("--kind", "export"))
    done = used.run("export", "--out", str(tmp_path / "other"), "--format", "parquet")
    assert (done.status, "omac[parquet]" in done.err) == (4, True), done
    assert len(used.audit("--kind", "export")) == before
    assert not (tmp_path / "other").exists()
    done = used.run("export", "verify", str(folder), "--key", used.ok("key", "show").strip())
    assert (done.status, "events verified" in done.out) == (0, True), done


@pytest.mark.full
def test_memory_does_not_grow_with_the_events(tmp_path: Path) -> None:
    """A hundred thousand events go through row groups."""
    with omac_in(tmp_path) as house:
        house.approve(house.project("shop", "echo"), "echo")
        called_often(house, 100_000)
        script = (
            "import os, sys; from omac.tools.main import main\n"
            "assert main(sys.argv[1:], os.environ, sys.stdin, sys.stdout, sys.stderr) == 0\n"
            "(peak,) = [line for line in open('/proc/self/status') if line.startswith('VmHWM')]; print(peak)"
        )
        words = ("export", "--out", str(tmp_path / "bundle"), "--format", "parquet")
        done = subprocess.run(
            (sys.executable, "-c", script, *words), env=house.environment, capture_output=True, text=True, check=True
        )
        assert int(done.stdout.split()[-2]) < PEAK_MIB_MAX * 1024
