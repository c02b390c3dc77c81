"""Paths of omac's own files: the same answer for every caller, wherever it runs."""

import pytest

from omac.domain.kernel.state_paths import configuration, state


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"OMAC_STATE_DIR": "/a", "XDG_STATE_HOME": "/b"}, "/a"),
        ({"OMAC_STATE_DIR": "a"}, "a"),
        ({"OMAC_STATE_DIR": "", "XDG_STATE_HOME": "/b/"}, "/b/omac"),
        ({"XDG_STATE_HOME": ""}, "/h/.local/state/omac"),
        ({"XDG_STATE_HOME": "relative"}, "/h/.local/state/omac"),
        ({}, "/h/.local/state/omac"),
    ],
)
def test_the_state_directory(environment: dict[str, str], path: str) -> None:
    """The state directory is omac's variable, else that of the desktop standard, else its default. A relative one of
    the standard is void."""
    assert state(environment, "/h") == path


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"XDG_CONFIG_HOME": "/c"}, "/c/omac"),
        ({"XDG_CONFIG_HOME": ""}, "/h/.config/omac"),
        ({"XDG_CONFIG_HOME": "relative"}, "/h/.config/omac"),
        ({}, "/h/.config/omac"),
    ],
)
def test_the_folder_of_settings(environment: dict[str, str], path: str) -> None:
    """A relative variable is void: a project's own folder must not become that of the user's settings."""
    assert configuration(environment, "/h") == path


def test_a_home_that_is_the_root() -> None:
    """No path begins with two slashes, which may mean something else."""
    assert (state({}, "/"), configuration({}, "/")) == ("/.local/state/omac", "/.config/omac")
