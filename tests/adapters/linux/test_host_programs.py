"""Programs that omac itself runs on the host, and the folders that they may come from."""

import os
from pathlib import Path

import pytest
from programs import program_at

from omac.adapters.linux import host_programs


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder that an agent may write, with a git and a bwrap in it."""
    folder = Path(os.path.realpath(tmp_path)) / "project"
    (folder / "bin").mkdir(parents=True)
    for name in ("git", "bwrap"):
        program_at(folder / "bin" / name, "#!/bin/sh\n")
    return folder


@pytest.mark.parametrize("name", ["git", "bwrap"])
def test_a_trusted_program_does_not_come_from_path(project: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The system's program is found, even if the first folder of PATH has one of that name."""
    monkeypatch.setenv("PATH", f"{project}/bin:/usr/bin:/bin")
    assert os.path.dirname(host_programs.find(name)) in host_programs.SYSTEM_FOLDERS
    assert host_programs.on_path(name, f"relative:{project}/bin") == f"{project}/bin/{name}", "PATH would find it"


def test_what_is_not_installed_is_not_found() -> None:
    """A program that is not installed has an empty path, and a folder is no program."""
    assert host_programs.find("no-such-program") == ""
    assert host_programs.on_path("bin", "/usr:") == ""


def test_folders_that_an_agent_may_write_are_left_out(project: Path, tmp_path: Path) -> None:
    """Folders in a writable place, links into it, folders that do not exist yet and relative ones are not trusted."""
    link = tmp_path / "link"
    link.symlink_to(project / "bin")
    inside = project / "leads-out"
    inside.symlink_to("/usr/bin")
    untrusted = [f"{project}/bin", str(link), str(inside), f"{project}/not-yet/bin"]
    path = ":".join(["", ".", "bin", *untrusted, "/usr/bin", f"{project}-beside", "/usr/bin"])
    assert host_programs.untrusted_folders(path, [str(project)]) == untrusted
    assert host_programs.trusted_path(path, [str(project)]) == f"/usr/bin:{project}-beside:/usr/bin"


def test_links_in_circles_are_not_trusted(tmp_path: Path) -> None:
    """A folder that leads nowhere is left out."""
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    assert host_programs.trusted_path(f"{circle}:/usr/bin", ["/w"]) == "/usr/bin"
