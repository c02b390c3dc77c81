"""Exports that leave out personal fields: commitments replace them, and each field that is shown must match its own."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from real_omac import Omac
from tools.test_erase_command import used
from tools.test_export_command import FORMATS, exported, resigned, verified

PATH, ARGUMENT = "private-basket", "private-argument"


@pytest.fixture(scope="module")
def host(house: Omac) -> Omac:
    """A host on which an agent called a skill, and a program ran in a sandbox."""
    project = house.approved("shop")
    used(house, project, PATH, ARGUMENT)
    return house


@pytest.fixture(scope="module")
def key(host: Omac) -> str:
    return host.ok("key", "show").strip()


def whole(folder: Path) -> bytes:
    """Return all content of a bundle, including decoded base64 of its evidence."""
    texts = [path.read_bytes() for path in sorted(folder.iterdir())]
    lines = [json.loads(line) for line in (folder / "evidence.jsonl").read_text().splitlines()]
    for line in lines:
        texts += [base64.b64decode(line.get("content", "")), *(base64.b64decode(o["value"]) for o in openings(line))]
    return b"\n".join(texts)


def openings(line: dict[str, Any]) -> list[dict[str, str]]:
    opened: list[dict[str, str]] = line.get("openings", [])
    return opened


@pytest.mark.parametrize("form", FORMATS)
def test_a_field_is_left_out(host: Omac, key: str, tmp_path: Path, form: str) -> None:
    """A redacted field is in no file of any format, and all else is. The bundle verifies by the public key alone."""
    folder = exported(
        host, tmp_path / "bundle", "--format", form, "--redact", "access.requested.path,access.refused.path"
    )
    assert PATH.encode() not in whole(folder)
    assert ARGUMENT.encode() in whole(folder)
    done = verified(folder, key)
    assert (done.status, done.err) == (0, ""), done
    assert json.loads((folder / "manifest.json").read_text())["without_content"] == 0


def test_what_readers_see(host: Omac, tmp_path: Path) -> None:
    """The commitment stands in the place of a redacted field."""
    folder = exported(host, tmp_path / "bundle", "--redact", "*.path,*.argv")
    records = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    (request,) = [record["event"] for record in records if record["kind"] == "access.requested"]
    (launch,) = [record["event"] for record in records if record["kind"] == "sandbox.launch-requested"]
    assert request["path"].startswith("(not shown: sha256 ")
    assert launch["argv"][0].startswith("(not shown: sha256 ")
    assert (request["skill"], request["method"], request["session"]) == ("echo", "GET", None)
    assert not [word for word in (PATH, ARGUMENT) if word.encode() in whole(folder)]
    full = exported(host, tmp_path / "full")
    assert PATH in (full / "events.jsonl").read_text()


def test_a_policy_that_means_nothing(host: Omac, tmp_path: Path) -> None:
    """Fields that omac folds cannot be left out alone: they have no commitment."""
    for policy in ("access.requested.skill", "*.dir", "nothing.path", "*", "path"):
        refused = host.run("export", "--out", str(tmp_path / "x"), "--redact", policy)
        assert (refused.status, "--redact takes kinds" in refused.err, (tmp_path / "x").exists()) == (2, True, False)


def altered(host: Omac, folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a line that opens a path, and sign the bundle again, as a thief of the key can."""
    lines = [json.loads(line) for line in (folder / "evidence.jsonl").read_text().splitlines()]
    change(next(line for line in lines if any(opening["name"] == "path" for opening in openings(line))))
    (folder / "evidence.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    resigned(host, folder, lambda _: None)


def opening_of(line: dict[str, Any]) -> dict[str, str]:
    return next(opening for opening in openings(line) if opening["name"] == "path")


def say(line: dict[str, Any]) -> None:
    opening_of(line)["value"] = base64.b64encode(msgspec.msgpack.encode("/another")).decode()


def flip(line: dict[str, Any]) -> None:
    salt = bytearray(base64.b64decode(opening_of(line)["salt"]))
    salt[3] ^= 4
    opening_of(line)["salt"] = base64.b64encode(salt).decode()


def rename(line: dict[str, Any]) -> None:
    opening_of(line)["name"] = "session"


def invent(line: dict[str, Any]) -> None:
    line["openings"].append({"name": "method", "salt": "", "value": base64.b64encode(b"\xa3PUT").decode()})


@pytest.mark.parametrize("change", [say, flip, rename, invent])
def test_what_is_shown_is_what_was_committed_to(
    host: Omac, key: str, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """Verification refuses a changed field even if a thief of the key signed it: the leaf has the commitment."""
    folder = exported(host, tmp_path / "bundle")
    altered(host, folder, change)
    done = verified(folder, key)
    assert (done.status, "committed to" in done.out) == (10, True), done


def test_a_proof_of_one_event(host: Omac, key: str, tmp_path: Path) -> None:
    """A proof of an event shows its fields, and verification checks them against their commitments."""
    position = next(row["position"] for row in host.audit() if PATH in row["path"])
    proof = tmp_path / "proof.json"
    proof.write_text(host.ok("audit", "prove", str(position)))
    assert f"/echo/{PATH}" in host.ok("proof", "verify", str(proof), "--key", key)
    content = json.loads(proof.read_text())
    opening_of(content)["value"] = base64.b64encode(msgspec.msgpack.encode("/another")).decode()
    proof.write_text(json.dumps(content))
    refused = host.run("proof", "verify", str(proof), "--key", key)
    assert (refused.status, "committed to" in refused.err) == (2, True)


@pytest.mark.full
def test_an_export_after_an_erasure(host: Omac, key: str, tmp_path: Path) -> None:
    """An export after an erasure has the commitments. An earlier export still shows the fields. Both verify."""
    before = exported(host, tmp_path / "before")
    position = next(row["position"] for row in host.audit() if PATH in row["path"])
    host.ok("erase", str(host.root / "shop"), "--yes")
    proof = tmp_path / "proof.json"
    proof.write_text(host.ok("audit", "prove", str(position)))
    assert "(not shown: sha256 " in host.ok("proof", "verify", str(proof), "--key", key)
    for form in FORMATS:
        folder = exported(host, tmp_path / form, "--format", form)
        assert PATH.encode() not in whole(folder)
        assert verified(folder, key).status == 0
    assert verified(before, key).status == 0
    assert PATH.encode() in whole(before)
