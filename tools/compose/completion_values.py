"""Values that a shell offers to complete: read from files, in no more than a look. Nothing is written or started.

An agent may have written the files, and a shell shows what is offered: names of another form than omac's are left out.
"""

import os
import re
from collections.abc import Mapping

from omac.adapters.files.lock import is_held
from omac.adapters.files.state import StateDir
from omac.adapters.skills.checking import document_of, skills_below
from omac.domain.skills.meta import SKILL_NAME, VARIABLE
from omac.tools.compose.project import project_of

RUN = re.compile(r"[0-9a-f]{1,32}")
OFFERED_MAX = 500


def skills_of(directory: str, home: str) -> dict[str, str]:
    """Return the folder of each skill of the project around `directory`, by its name."""
    sources = skills_below(project_of(os.path.realpath(directory), home))
    named = {os.path.basename(source): source for source in reversed(sources)}
    return {name: named[name] for name in sorted(named)[:OFFERED_MAX] if SKILL_NAME.fullmatch(name)}


def names_of(source: str, section: str) -> list[str]:
    """Return the names of the secrets or the settings (`section`) that an omac.yaml declares; none if it is broken."""
    sidecar = document_of(source).get("sidecar")
    entries = sidecar.get(section) if isinstance(sidecar, dict) else None
    named = [entry.get("name") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [name for name in named[:OFFERED_MAX] if isinstance(name, str) and VARIABLE.fullmatch(name)]


def runs_of(environment: Mapping[str, str]) -> list[str]:
    """Return the ids of the runs that hold the lock of their folder: those that live."""
    folder = os.path.join(StateDir.of(environment).path, "run")
    try:
        names = sorted(os.listdir(folder))
        return [name for name in names[:OFFERED_MAX] if RUN.fullmatch(name) and is_held(f"{folder}/{name}/lock")]
    except OSError:
        return []
