"""The form of an export, as docs/journal.md has it: a verifier that knows that page and nothing of omac."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from real_omac import Omac, curl

Json = dict[str, Any]


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def require_signed(note: str, key: str) -> list[str]:
    """Return the lines of a signed note of C2SP. Raises for one that this key has not signed."""
    body, _, signatures = note.rpartition("\n\n")
    name, digits, encoded = key.split("+", 2)
    public = base64.b64decode(encoded)
    assert sha256(name.encode(), b"\n", public)[:4].hex() == digits
    assert public[:1] == b"\x01"
    by_key = [base64.b64decode(line.split()[2]) for line in signatures.splitlines() if line.split()[1] == name]
    (signature,) = [content[4:] for content in by_key if content[:4].hex() == digits]
    Ed25519PublicKey.from_public_bytes(public[1:]).verify(signature, (body + "\n").encode())
    return body.splitlines()


def last_key(rotations: Sequence[str], journal: str, key: str) -> str:
    """Return the key that rotations lead to from the first one."""
    for note in rotations:
        origin, old, new, _ = require_signed(note, key)
        assert (origin, old) == (f"omac/{journal}/key", f"old {key}")
        key = new.removeprefix("old ").removeprefix("new ")
        require_signed(note, key)
    return key


def root_of(subtrees: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the root of perfect subtrees, each with its number of leaves."""
    stack: list[tuple[int, bytes]] = []
    for leaves, root in subtrees:
        stack.append((leaves, root))
        while len(stack) > 1 and stack[-2][0] == stack[-1][0]:
            (size, left), (_, right) = stack[-2:]
            stack[-2:] = [(2 * size, sha256(b"\x01", left, right))]
    while len(stack) > 1:
        (_, left), (_, right) = stack[-2:]
        stack[-2:] = [(0, sha256(b"\x01", left, right))]
    return stack[0][1]


def fields_of(content: bytes, openings: Sequence[Json]) -> tuple[list[Any], list[Any], int]:
    """Return the columns of an event, its fields as they are shown, and how many were opened."""
    *columns, body = msgspec.msgpack.decode(content)
    assert len(columns) == 11
    assert body[0] < 0x80  # the version of the kind, a msgpack value of one byte
    fields = msgspec.msgpack.decode(body[1:])
    opened = 0
    for opening in openings:
        salt, value = base64.b64decode(opening["salt"]), base64.b64decode(opening["value"])
        for index, field in enumerate(fields):
            if isinstance(field, msgspec.msgpack.Ext) and bytes(field.data) == sha256(salt, value):
                assert field.code == 1
                fields[index] = msgspec.msgpack.decode(value)
                opened += 1
    return columns, fields, opened


def lines(folder: Path, name: str) -> list[Json]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def verify(folder: Path, key: str) -> list[tuple[Json, list[Any]]]:
    """Verify an export by a public key; return each event that has a content, as readers get it, with its fields."""
    text = (folder / "manifest.json").read_bytes()
    manifest = json.loads(text)
    key = last_key(manifest["rotations"], manifest["journal"], key)
    assert require_signed((folder / "manifest.sig").read_text(), key) == ["omac/export", sha256(text).hex()]
    assert {*os.listdir(folder)} == {*manifest["files"], "manifest.json", "manifest.sig"}
    for name, stated in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert (len(content), sha256(content).hex()) == (stated["bytes"], stated["sha256"])
    origin, size, root, time, late = require_signed((folder / "checkpoint.txt").read_text(), key)
    stated = (
        f"omac/{manifest['journal']}",
        str(manifest["size"]),
        f"time {manifest['at']}",
        f"late {manifest['late']}",
    )
    assert (origin, size, time, late) == stated
    subtrees = {gap["position"]: (gap["leaves"], base64.b64decode(gap["root"])) for gap in lines(folder, "gaps.jsonl")}
    events, evidence = [], lines(folder, "evidence.jsonl")
    for line, shown in zip(evidence, lines(folder, "events.jsonl"), strict=True):
        content = base64.b64decode(line.get("content", ""))
        subtrees[line["position"]] = 1, sha256(b"\x00", content) if content else base64.b64decode(line["leaf"])
        if content:
            columns, fields, opened = fields_of(content, line.get("openings", ()))
            assert opened == len(line.get("openings", ()))
            names = ("position", "stream", "version", "kind", None, "run", "actor", "correlation", "causation")
            for name, column in zip(names, columns, strict=False):
                assert name is None or shown.get(name) == column
            events.append((shown, fields))
    following = 1
    for position in sorted(subtrees):
        assert position == following
        following += subtrees[position][0]
    assert following == manifest["size"] + 1
    tree = root_of([subtrees[position] for position in sorted(subtrees)])
    assert tree == base64.b64decode(root) == bytes.fromhex(manifest["root"])
    without = sum("content" not in line for line in evidence)
    assert (len(evidence), without) == (manifest["events"], manifest["without_content"])
    return events


@pytest.fixture(scope="module")
def used(house: Omac) -> tuple[Omac, str]:
    """Return a host on which a skill was called, a directory erased and a key replaced, and its first public key."""
    shop, blog = house.approved("shop"), house.approved("blog")
    first = house.ok("key", "show").strip()
    serving = house.serve()
    for project in (shop, blog):
        assert curl(f"{serving.skill(project)['base']}/echo/called").status == 200
    assert serving.end() == 0
    house.ok("erase", str(blog), "--yes")
    house.ok("key", "rotate")
    return house, first


@pytest.mark.parametrize("options", [(), ("--kind", "access"), ("--redact", "skill,sidecar")])
def test_a_verifier_that_knows_the_page_alone(used: tuple[Omac, str], tmp_path: Path, options: Sequence[str]) -> None:
    """The page says all that a verifier needs, of whole, filtered and redacted exports, and what was erased."""
    omac, first = used
    omac.ok("export", "--out", str(tmp_path / "bundle"), *options)
    events = verify(tmp_path / "bundle", first)
    for shown, fields in events:
        for value, field in zip(shown["event"].values(), fields, strict=False):
            is_closed = isinstance(field, msgspec.msgpack.Ext)
            assert (f"sha256 {bytes(field.data).hex()}" in str(value)) if is_closed else _same(value, field)
    called: list[Mapping[str, Any]] = [shown["event"] for shown, _ in events if shown["kind"] == "access.requested"]
    assert [event["path"].partition(":")[0] for event in called] == ["/echo/called", "(not shown"]


def _same(value: Any, field: Any) -> bool:
    """Return whether a field is what readers get; a structure that has names for them is an array in msgpack."""
    return value == field or isinstance(value, dict)
