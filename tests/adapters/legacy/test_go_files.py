"""adapters/legacy/go_files.py: real files of careful users, of other programs, and of malicious agents."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.legacy.go_files import BYTES_MAX, ENTRIES_MAX, NOTES_PER_FILE_MAX, copy_path, read_old
from omac.adapters.skills.yaml_file import YamlFileError, parse_yaml
from omac.domain.legacy.go_import import Old

HASH = "sha256:" + "a" * 64


class House:
    """A project and a home with omac's old files."""

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        self.project, self.home = folder / "project", folder / "home"
        self.config = self.home / ".config" / "omac"
        (self.project / ".opencode").mkdir(parents=True)
        self.config.mkdir(parents=True)
        self.environment = {"HOME": str(self.home)}

    def read(self) -> Old:
        """Return all data that is read from the old files."""
        return read_old(str(self.project), self.environment, yaml)

    def registry(self, *entries: object, **more: Any) -> Path:
        """Write the project's registry."""
        return put(self.project / ".opencode" / "sidecar.json", {"version": 1, "registered": entries, **more})

    def approvals(self, *entries: object, **more: Any) -> Path:
        """Write the approvals."""
        return put(self.config / "approvals.json", {"version": 1, "approved": entries, **more})


def yaml(content: bytes, path: str) -> object:
    """Parse YAML as the command line does."""
    try:
        return parse_yaml(content, path)
    except YamlFileError as error:
        raise ValueError(error.problem) from None


def put(path: Path, content: object) -> Path:
    """Write a file that only its owner may write."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(0o600)
    return path


def entry(**more: Any) -> dict[str, Any]:
    """Return an entry of a registry, or of the approvals."""
    usual = {"name": "slack", "skill_dir": ".opencode/skills/slack", "bundle_hash": HASH, "registered_at": "x"}
    return {key: value for key, value in (usual | more).items() if value is not None}


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Return a project and a home of this test's own."""
    return House(tmp_path)


def test_all_that_there_is(house: House) -> None:
    """Each file is read in its schema; a skill's folder is relative to its project, and its links are resolved."""
    (house.project / ".opencode" / "skills").symlink_to(house.home)
    registry = house.registry(entry(declared_secret_names=["A_B"], harness="opencode", later="?"))
    shared = put(house.config / "sidecar.json", {"version": 1, "registered": [entry(skill_dir="/s/slack")]})
    house.approvals(entry(skill_dir="/s/slack"))
    put(house.project / ".opencode" / "skill-config.yaml", "version: 1\nskills: {slack: {A: x, B: 8080, C: true}}\n")
    put(house.config / "skill-config.yaml", 'version: 1\nskills: {}\ndefaults:\n  slack:\n    A: "010"\n')
    old = house.read()
    assert old.notes == ()
    first, second = old.entries
    assert (first.source, first.names, first.file, first.shared) == (
        str(house.home / "slack"), ("A_B",), str(registry), False,
    )  # fmt: skip
    assert (second.source, second.file, second.shared) == ("/s/slack", str(shared), True)
    assert [(approval.name, approval.source, approval.bundle_hash) for approval in old.approvals] == [
        ("slack", "/s/slack", HASH)
    ]
    assert old.project.given == {"slack": {"A": "x", "B": "8080", "C": "true"}}
    assert old.user.remembered == {"slack": {"A": "010"}}


def test_links_of_an_approved_folder(house: House, tmp_path: Path) -> None:
    """Links to the project are resolved in an approved folder, and links in the project only in its source."""
    (tmp_path / "link").symlink_to(house.project)
    (house.project / ".opencode" / "skills").symlink_to(house.home)
    house.approvals(entry(skill_dir=f"{tmp_path}/link/.opencode/skills/slack"))
    (approval,) = house.read().approvals
    assert approval.folder == f"{house.project}/.opencode/skills/slack"
    assert approval.source == f"{house.home}/slack"


def test_nothing_is_no_problem(house: House) -> None:
    """Missing files, folders and a missing home yield no entry and no note."""
    old = house.read()
    assert (old.entries, old.approvals, old.notes, old.project.given) == ((), (), (), {})
    assert read_old("/nowhere", {"HOME": "/nowhere"}, yaml).notes == ()


def test_where_the_user_keeps_them(house: House, tmp_path: Path) -> None:
    """$XDG_CONFIG_HOME counts if it is absolute; without settings there, those in ~/.config count."""
    house.approvals(entry(skill_dir="/s/slack"))
    put(house.config / "skill-config.yaml", "version: 1\nskills: {slack: {A: usual}}\n")
    house.environment["XDG_CONFIG_HOME"] = "relative"
    assert len(house.read().approvals) == 1
    (tmp_path / "xdg" / "omac").mkdir(parents=True)
    house.environment["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert house.read().approvals == ()
    assert house.read().user.given == {"slack": {"A": "usual"}}
    put(tmp_path / "xdg" / "omac" / "skill-config.yaml", "version: 1\nskills: {slack: {A: xdg}}\n")
    assert house.read().user.given == {"slack": {"A": "xdg"}}
    assert copy_path("slack", HASH, house.environment) == str(tmp_path / "xdg/omac/skills/slack" / ("a" * 64))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "../x"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "a\x1b[2J"}, "name"),
        ({"name": 7}, "name"),
        ({"name": None}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"skill_dir": "../../etc"}, "skill_dir"),
        ({"skill_dir": "a\nb"}, "skill_dir"),
        ({"skill_dir": "a\0b"}, "skill_dir"),
        ({"skill_dir": ["a"]}, "skill_dir"),
        ({"bundle_hash": 1}, "bundle_hash"),
        ({"declared_secret_names": "A"}, "declared_secret_names"),
        ({"declared_secret_names": ["a=b"]}, "declared_secret_names"),
        ({"declared_secret_names": [None]}, "declared_secret_names"),
        ({"declared_secret_names": ["A"] * 1000}, "declared_secret_names"),
    ],
)
def test_an_entry_that_cannot_be_used(house: House, wrong: dict[str, Any], said: str) -> None:
    """An entry that cannot be used is named with its file, in a printable line, and the other entries count."""
    path = house.registry(entry(**wrong), entry(name="good"), 7)
    old = house.read()
    assert [registered.name for registered in old.entries] == ["good"]
    first, second = old.notes
    assert first.startswith(f"{path}: registered[0]")
    assert said in first
    assert first.isprintable()
    assert second == f"{path}: registered[2] must be a mapping"


@pytest.mark.parametrize("wrong", [{"bundle_hash": "sha256:1"}, {"skill_dir": None}, {"skill_dir": "relative"}])
def test_an_approval_that_cannot_be_used(house: House, wrong: dict[str, Any]) -> None:
    """An approval that cannot be used approves no skill, and causes a note."""
    house.approvals(entry(**{"skill_dir": "/s/slack", **wrong}))
    old = house.read()
    assert old.approvals == ()
    assert len(old.notes) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 200_000, "JSON"),
        (b'{"version": 1, "registered": "\\ud800"}', "JSON"),
        (b"[]", "mapping"),
        (b"null", "mapping"),
        (b"{}", "version"),
        (b'{"version": "1"}', "version"),
        (b'{"version": true}', "version"),
        (b'{"version": 0}', "version"),
        (b'{"version": 2, "registered": []}', "newer omac"),
        (b'{"version": 1, "registered": {}}', "list"),
        (b" " * (BYTES_MAX + 1), "larger"),
        (json.dumps({"version": 1, "registered": [0] * (ENTRIES_MAX + 1)}).encode(), "entries"),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_a_file_that_cannot_be_used(house: House, content: bytes, said: str) -> None:
    """A file that cannot be used is named once with the error, and the other files count."""
    path = put(house.project / ".opencode" / "sidecar.json", content)
    house.approvals(entry(skill_dir="/s/slack"))
    old = house.read()
    assert len(old.approvals) == 1
    (note,) = old.notes
    assert note.startswith(f"{path}: ")
    assert said in note


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("version: 1\nskills: {a: &x {A: *x}}\n", "inside its own value"),
        ("version: 1\nskills: !!python/object:os.system {}\n", "tag"),
        ("version: 1\nversion: 1\n", "repeated"),
        ("version: 1\nskills: [\n", "YAML"),
        ("version: 3\n", "newer omac"),
        ("- 1\n", "mapping"),
        ("version: 1\nskills: [a]\n", "skills must be a mapping"),
        ("version: 1\nskills: {slack: text}\n", "skills.slack"),
        ("version: 1\nskills: {'../x': {A: b}}\n", "name of a skill"),
        ("version: 1\nskills: {slack: {'a b': c}}\n", "name of a variable"),
        ("version: 1\nskills: {slack: {A: 1.5}}\n", "quotes"),
        ("version: 1\nskills: {slack: {A: [b]}}\n", "quotes"),
        ("version: 1\nskills: {slack: {A: 99999999999999999999}}\n", "quotes"),
        ("#" * 300_000, "larger"),
    ],
)
def test_settings_that_cannot_be_used(house: House, content: str, said: str) -> None:
    """Settings beyond plain data are refused with a note, and the other settings file counts."""
    path = put(house.project / ".opencode" / "skill-config.yaml", content)
    put(house.config / "skill-config.yaml", "version: 1\nskills: {slack: {A: b}}\n")
    old = house.read()
    assert old.user.given == {"slack": {"A": "b"}}
    (note,) = old.notes
    assert note.startswith(f"{path}: ")
    assert said in note


def link_to_home(path: Path, house: House) -> None:
    path.symlink_to(house.config / "approvals.json")


def fifo(path: Path, house: House) -> None:
    os.mkfifo(path)


def folder(path: Path, house: House) -> None:
    path.mkdir()


def device(path: Path, house: House) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [link_to_home, fifo, folder, device])
@pytest.mark.parametrize("name", ["sidecar.json", "skill-config.yaml"])
def test_what_is_no_file_in_a_project(house: House, make: Callable[[Path, House], None], name: str) -> None:
    """A link, FIFO, folder or device in place of a project's file is noted, without following or waiting."""
    house.approvals(entry(skill_dir="/s/slack"))
    path = house.project / ".opencode" / name
    make(path, house)
    begun = perf_counter()
    (note,) = house.read().notes
    assert perf_counter() - begun < 20
    assert note.startswith(f"{path}: ")


def test_a_project_folder_that_is_a_link(house: House, tmp_path: Path) -> None:
    """Files below a project's folder that is a link are not read."""
    (house.project / ".opencode").rmdir()
    (tmp_path / "other").mkdir()
    put(tmp_path / "other" / "sidecar.json", {"version": 1, "registered": [entry()]})
    (house.project / ".opencode").symlink_to(tmp_path / "other")
    old = house.read()
    assert old.entries == ()
    assert len(old.notes) == 2  # one a file


def test_a_users_file_may_be_a_link(house: House, tmp_path: Path) -> None:
    """A user's file may be a link, but not into the project, nor to a file that others may write."""
    target = put(tmp_path / "kept.json", {"version": 1, "approved": [entry(skill_dir="/s/slack")]})
    path = house.config / "approvals.json"
    path.symlink_to(target)
    assert len(house.read().approvals) == 1
    target.chmod(0o620)
    assert house.read().approvals == ()
    assert "writable by other users" in house.read().notes[0]
    path.unlink()
    path.symlink_to(put(house.project / "kept.json", target.read_text()))
    assert house.read().approvals == ()
    assert "an agent can write" in house.read().notes[0]


def test_a_folder_that_others_may_write(house: House) -> None:
    """Approvals in a folder that others can write to do not count, for they could be replaced."""
    house.approvals(entry(skill_dir="/s/slack"))
    house.config.chmod(0o777)
    assert house.read().approvals == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(house: House) -> None:
    """A file that cannot be read is named."""
    house.approvals(entry()).chmod(0)
    assert "cannot be read" in house.read().notes[0]


def test_thousands_of_bad_entries(house: House) -> None:
    """Thousands of bad entries are read in a few seconds, with a bounded number of notes."""
    path = house.registry(*[entry(name="..")] * ENTRIES_MAX)
    begun = perf_counter()
    old = house.read()
    assert perf_counter() - begun < 5
    assert len(old.notes) == NOTES_PER_FILE_MAX + 1
    assert all(note.startswith(str(path)) for note in old.notes)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["version", "registered", "approved", "name", "skill_dir", "bundle_hash", "skills"]),
                inner | st.just(1),
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_any_document(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    """Files of any content are read without an exception."""
    house = House(tmp_path_factory.mktemp("any"))
    for path in (
        house.project / ".opencode" / "sidecar.json",
        house.project / ".opencode" / "skill-config.yaml",
        house.config / "approvals.json",
        house.config / "sidecar.json",
    ):
        put(path, document if isinstance(document, dict) else json.dumps(document))
    house.read()
