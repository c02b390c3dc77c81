"""omac's own files, for `omac doctor`."""

import os
from collections.abc import Mapping
from contextlib import closing

from omac.adapters.files.state import StateDir
from omac.adapters.files.upkeep import flaws_of, mend
from omac.adapters.settings.files import user_path
from omac.domain.kernel.ids import RunId, key_of
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.own_files import Flaw
from omac.tools.compose.journals import read_if_any, system_of


class OwnFiles:
    """The state directory that the environment means, and the files of omac's in the settings folder."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.state = StateDir.of(environment)
        settings = user_path(environment)
        self._public = (os.path.dirname(settings), settings)
        self._unended = _unended(self.state, environment)

    def flaws(self) -> tuple[Flaw, ...]:
        """Return what is wrong."""
        return flaws_of(self.state, self._public, self._unended)

    def mend(self, flaw: Flaw) -> bool:
        """Mend a flaw; whether that was done. Raises OSError."""
        return mend(self.state, flaw, self._unended)


def _unended(state: StateDir, environment: Mapping[str, str]) -> list[RunId]:
    """The runs whose end is not recorded; none where the journal cannot be read, where their locks have to do."""
    try:
        journal = read_if_any(state, state.journal_in_use(environment))
    except Refusal:
        return []
    if journal is None:
        return []
    try:
        with closing(journal):
            system = system_of(journal, state)
    except Refusal:
        return []
    entries = system.runs.entries.items()
    return [RunId(key_of(stream).name) for stream, entry in entries if entry.state.status == "started"]
