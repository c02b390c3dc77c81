"""adapters/files/upkeep.py: what another user, who could write there, puts in the way is neither changed nor listed."""

import os
import stat
from pathlib import Path

import pytest

from omac.adapters.files.state import StateDir
from omac.adapters.files.upkeep import flaws_of, repair


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder in a state directory, open to everybody."""
    logs = tmp_path / "state" / "run" / "a" / "logs"
    logs.mkdir(parents=True)
    for folder in (logs, *logs.parents[:3]):
        folder.chmod(0o777)
    (logs / "page").write_text("")
    (logs / "page").chmod(0o644)
    return logs


def test_a_link_on_the_way_leads_nowhere(tmp_path: Path, logs: Path) -> None:
    """Put there after the look, in place of a folder: a page of the person's keeps its mode."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "page").write_text("")
    (site / "page").chmod(0o644)
    state = StateDir(str(tmp_path / "state"))
    (flaw,) = [one for one in flaws_of(state) if one.path.endswith("/page")]
    os.rename(logs, logs.parent / "moved")
    logs.symlink_to(site)
    with pytest.raises(OSError, match="symbolic links"):
        repair(state, flaw)
    assert stat.S_IMODE((site / "page").stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_another_user_is_named_and_left(tmp_path: Path, logs: Path) -> None:
    """What is in it is that user's choice."""
    os.chown(logs, 65534, 65534)
    found = {(one.kind, one.path) for one in flaws_of(StateDir(str(tmp_path / "state")))}
    assert ("foreign", str(logs)) in found
    assert not [path for _, path in found if path.startswith(f"{logs}/")]


def test_what_leads_to_the_settings_may_be_a_link(tmp_path: Path) -> None:
    """As in a home whose .config is kept elsewhere."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "settings.toml").write_text("")
    (kept / "settings.toml").chmod(0o666)
    (tmp_path / "config").symlink_to(kept)
    state = StateDir(str(tmp_path / "state"))
    flaws = flaws_of(state, [str(tmp_path / "config" / "settings.toml")])
    (flaw,) = [one for one in flaws if one.kind == "mode"]
    assert repair(state, flaw)
    assert stat.S_IMODE((kept / "settings.toml").stat().st_mode) == 0o644
