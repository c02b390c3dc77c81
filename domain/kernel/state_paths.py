"""The folders that omac keeps as its own, as the environment names them: one answer for every program of omac.

A relative path in a variable of the XDG Base Directory Specification is ignored, as the specification demands. `home`
is the user's folder (`adapters/linux/home.py: home_of`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VAULT = "vault"  # in the state directory
KEY_NOTE = f"{VAULT}.key-file"  # the same: the path of the key file that opened the vault last
MARKS = "journals"  # the same: the folder of the marks of journals (`journal/mark.py`)
LINK, EXPOSED = ".path", ".exposed"  # behind a mark's name: a link to a journal elsewhere, and that of a distrusted one


def stated_home(environment: Mapping[str, str]) -> str:
    """$HOME, where that is absolute; else "": then the user database is to be asked."""
    named = environment.get("HOME", "")
    return (named.rstrip("/") or "/") if named.startswith("/") else ""


def state(environment: Mapping[str, str], home: str) -> str:
    """The state directory: $OMAC_STATE_DIR, which may be relative, else $XDG_STATE_HOME/omac, else below `home`."""
    return environment.get("OMAC_STATE_DIR") or _xdg(environment, "XDG_STATE_HOME", f"{home.rstrip('/')}/.local/state")


def configuration(environment: Mapping[str, str], home: str) -> str:
    """The folder of the user's settings and profiles: $XDG_CONFIG_HOME/omac, else ~/.config/omac."""
    return _xdg(environment, "XDG_CONFIG_HOME", f"{home.rstrip('/')}/.config")


def _xdg(environment: Mapping[str, str], variable: str, otherwise: str) -> str:
    named = environment.get(variable, "")
    return (named if named.startswith("/") else otherwise).rstrip("/") + "/omac"
