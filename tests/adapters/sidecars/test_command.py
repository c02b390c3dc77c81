"""adapters/sidecars/command.py: paths of the skill's own folder lead to the copy."""

from pathlib import Path

import pytest

from omac.adapters.sidecars import command
from omac.domain.sidecars.sidecar import SidecarSpec


@pytest.mark.parametrize("copied_from", ["", "/w/first/echo"])
@pytest.mark.parametrize("program", ["./run", "{folder}/run", "{folder}/./run", "{folder}/x/../run"])
def test_paths_of_the_own_folder_lead_to_the_copy(tmp_path: Path, copied_from: str, program: str) -> None:
    """A command that names its own folder, in any spelling, runs the copy: that of the folder it is in, and that of the
    folder which the copy was made of."""
    (tmp_path / "run").touch(0o755)
    folder = copied_from or "/w/shop/echo"
    words = (program.format(folder=folder), f"--in={folder}/data", f"{folder}-beside")
    spec = SidecarSpec("echo", "echo", "/w/shop", "/w/shop/echo", "/w/shop", "", True, words, copied_from=copied_from)
    assert command.argv(spec, str(tmp_path), 1, {}) == [f"{tmp_path}/run", f"--in={tmp_path}/data", f"{folder}-beside"]
