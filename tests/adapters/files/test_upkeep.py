"""adapters/files/upkeep.py: files that another user may have put into a folder are neither changed nor listed."""

import os
import stat
from pathlib import Path

import pytest

from omac.adapters.files.state import StateDir
from omac.adapters.files.upkeep import flaws_of, repair


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return a folder in a state directory that every user can write to."""
    logs = tmp_path / "state" / "run" / "a" / "logs"
    logs.mkdir(parents=True)
    for folder in (logs, *logs.parents[:3]):
        folder.chmod(0o777)
    (logs / "page").write_text("")
    (logs / "page").chmod(0o644)
    return logs


def test_a_link_on_the_way_leads_nowhere(tmp_path: Path, logs: Path) -> None:
    """A link that replaces a folder after the inspection is not followed: a page of the user's keeps its mode."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "page").write_text("")
    (site / "page").chmod(0o644)
    state = StateDir(str(tmp_path / "state"))
    (flaw,) = [candidate for candidate in flaws_of(state) if candidate.path.endswith("/page")]
    os.rename(logs, logs.parent / "moved")
    logs.symlink_to(site)
    with pytest.raises(OSError, match="symbolic links"):
        repair(state, flaw)
    assert stat.S_IMODE((site / "page").stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_another_user_is_named_and_left(tmp_path: Path, logs: Path) -> None:
    """A folder of another user is named, and its content is not listed."""
    os.chown(logs, 65534, 65534)
    flaws = {(flaw.kind, flaw.path) for flaw in flaws_of(StateDir(str(tmp_path / "state")))}
    assert ("foreign", str(logs)) in flaws
    assert not [path for _, path in flaws if path.startswith(f"{logs}/")]


def test_what_leads_to_the_settings_may_be_a_link(tmp_path: Path) -> None:
    """Settings behind a link are repaired, as in a home whose .config is kept elsewhere."""
    elsewhere = tmp_path / "kept"
    elsewhere.mkdir()
    (elsewhere / "settings.toml").write_text("")
    (elsewhere / "settings.toml").chmod(0o666)
    (tmp_path / "config").symlink_to(elsewhere)
    state = StateDir(str(tmp_path / "state"))
    flaws = flaws_of(state, [str(tmp_path / "config" / "settings.toml")])
    (flaw,) = [candidate for candidate in flaws if candidate.kind == "mode"]
    assert repair(state, flaw)
    assert stat.S_IMODE((elsewhere / "settings.toml").stat().st_mode) == 0o644
