"""adapters/skills/external_references.py: files that a skill names outside itself must be root's alone."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from omac.adapters.skills.external_references import OWN, named_paths, require_unchangeable
from omac.adapters.skills.links import Uncopyable


@pytest.mark.parametrize(
    ("relpath", "head", "places"),
    [
        (".venv/pyvenv.cfg", b"home = /usr/bin\nversion = 3\r\n", ["/usr/bin"]),
        ("v/lib/a.pth", b"# no\nimport x; /no\n/p/src\n../../src\n\n", ["/p/src", "v/lib/../../src"]),
        ("v/__editable___finder.py", b"MAPPING = {'a': '/p/src/a', \"b\": \"/q\"}", ["/p/src/a", "/q"]),
        ("run", b"#!/usr/bin/env python3\n/etc", ["/usr/bin/env"]),
        ("run", b"#! /p/bin/python -I", ["/p/bin/python"]),
        ("run", b"#!/bin/sh\n'''exec' '/p q/bin/python' \"$0\"\n", ["/bin/sh", "/p q/bin/python"]),
        ("run", b"no script", []),
    ],
)
def test_what_files_name(relpath: str, head: bytes, places: list[str]) -> None:
    """Each kind of file names paths in its own way; relative ones are joined to the file's folder."""
    assert named_paths(relpath, head) == places


@pytest.mark.parametrize("place", [f"{OWN}/.venv/bin/python", "v/../lib", "/usr/bin/env", "/nobody/has/this"])
def test_places_that_nobody_else_can_change(tmp_path: Path, place: str) -> None:
    """Paths inside the skill's folder, or root's alone, are accepted, whether they exist or not."""
    require_unchangeable(str(tmp_path), "x", [place])


@pytest.fixture
def project() -> Iterator[Path]:
    """Yield a project of root's, below folders that are root's alone."""
    path = Path("/opt" if os.access("/opt", os.W_OK) else "/var/opt") / f"omac-project-{os.getpid()}"
    path.mkdir(mode=0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="of another user all of it is refused anyway")
def test_the_project_is_an_agents(project: Path) -> None:
    """For root, paths in the project are refused although root owns them, as an agent may change them. Paths beside the
    project are accepted."""
    source = project / ".agents" / "skills" / "echo"
    source.mkdir(parents=True)
    (project / "bin").symlink_to("/usr/bin")
    for path in (f"{project}/venv/bin", f"{project}/bin/python3", "../../../src"):
        with pytest.raises(Uncopyable, match="where an agent may change it"):
            require_unchangeable(str(source), "pyvenv.cfg", [path])
    require_unchangeable(str(source), "pyvenv.cfg", [f"{OWN}/bin", f"{project}-beside/bin", "/usr/bin"])


@pytest.mark.parametrize("place", [f"{OWN}/../src", "../src", "/tmp/x", "{tmp}/link/bin"])
def test_places_that_others_can_change(tmp_path: Path, place: str) -> None:
    """A refusal names the file that names the path; a link to a good path is no better than the folder it is in."""
    source = tmp_path / "skill"
    source.mkdir()
    (tmp_path / "link").symlink_to("/usr")
    with pytest.raises(Uncopyable) as caught:
        require_unchangeable(str(source), "a.pth", [place.replace("{tmp}", str(tmp_path))])
    assert caught.value.filename == str(source / "a.pth")
