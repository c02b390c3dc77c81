"""`./demo --once`, which README offers before an installation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


@pytest.mark.full
def test_the_demo_succeeds(tmp_path: Path) -> None:
    """Each step of the demo prints what the next one needs, with the omac and the example of this checkout."""
    shutil.copy(CHECKOUT / "demo", tmp_path)
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/prepare").write_text("")  # all is installed here
    (tmp_path / "examples").symlink_to(CHECKOUT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    environment = {name: os.environ[name] for name in ("HOME", "PATH")} | {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = subprocess.run(
        ["./demo", "--once"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done
    assert done.stdout.endswith("\nthe demo succeeded\n"), done
    assert "\n$ curl -sS --data 'hi there' http://127.0.0.1:" in done.stdout  # as a shell takes it


def test_an_environment_that_is_there_keeps_its_interpreter(tmp_path: Path) -> None:
    """The demo hands the interpreter of the checkout's environment on: by another one uv would make that again, without
    the packages of a contributor."""
    shutil.copy(CHECKOUT / "demo", tmp_path)
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/prepare").write_text('echo "${UV_PYTHON-none}"; exit')
    environment = {"PATH": os.environ["PATH"]}

    def printed() -> str:
        return subprocess.run(["./demo"], cwd=tmp_path, env=environment, capture_output=True, text=True).stdout

    assert printed() == "none\n"
    (tmp_path / ".venv").symlink_to(sys.prefix)
    assert printed() == f"{tmp_path / '.venv/bin/python'}\n"
