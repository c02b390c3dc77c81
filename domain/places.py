"""Where omac keeps what is its own, as the environment says: one answer for every program of it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def home(environment: Mapping[str, str], otherwise: str) -> str:
    """The user's folder: $HOME if that is absolute, else `otherwise` (the one of the user database)."""
    named = environment.get("HOME", "")
    return named.rstrip("/") or "/" if named.startswith("/") else otherwise


def state(environment: Mapping[str, str], home: str) -> str:
    """The state directory: $OMAC_STATE_DIR, else $XDG_STATE_HOME/omac, else ~/.local/state/omac."""
    if named := environment.get("OMAC_STATE_DIR"):
        return named
    return (environment.get("XDG_STATE_HOME") or f"{home}/.local/state") + "/omac"


def configuration(environment: Mapping[str, str], home: str) -> str:
    """The folder of the user's settings and profiles: $XDG_CONFIG_HOME/omac, else ~/.config/omac."""
    named = environment.get("XDG_CONFIG_HOME", "")
    return (named if named.startswith("/") else f"{home}/.config") + "/omac"
