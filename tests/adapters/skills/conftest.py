import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import program_at

from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create a small skill with a bit of everything that can be copied."""
    path = tmp_path / "project" / ".agents" / "skills" / "echo"
    (path / "lib").mkdir(parents=True)
    (path / "empty").mkdir()
    (path / "SKILL.md").write_text("# x\n")
    (path / "omac.yaml").write_text("name: echo\n")
    (path / "lib" / "code.py").write_text("print('good')\n")
    program_at(path / "run", "#!/bin/sh\necho good\n")
    (path / "link").symlink_to("lib/code.py")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of the frozen copies; make it removable at the end."""
    path = tmp_path / "state" / "frozen"
    yield path
    subprocess.run(["chmod", "-R", "u+rwX", str(tmp_path)], check=False)


@pytest.fixture
def frozen(store: Path) -> DiskFrozenSkills:
    return DiskFrozenSkills(str(store))


@pytest.fixture
def folders() -> DiskSkillFolders:
    return DiskSkillFolders()


@pytest.fixture
def interpreter() -> str:
    """Return a Python that only root can change."""
    path = "/usr/bin/python3"
    if not os.path.exists(path):
        pytest.skip(f"there is no {path}")
    return path
