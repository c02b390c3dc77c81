"""Personal fields: what an agent or a person wrote or asked for, by the kind of its event; all other fields omac folds.

A field that is listed is stored encrypted (`journal/commitments.py`), with the key of the directory that the event
names: `omac erase` destroys that key. No fold of a state may decide by such a field, for it can be gone. Of an event
that names no directory they are stored in the clear.
"""

from typing import NamedTuple


class PersonalFields(NamedTuple):
    """The personal fields of a kind, in order, and the field that names the directory or directories that they belong
    to."""

    directory: str
    names: tuple[str, ...]


PERSONAL: dict[str, PersonalFields] = {
    "access.requested": PersonalFields("dir", ("session", "path")),
    "access.batch-requested": PersonalFields("dir", ("session", "path")),
    "access.refused": PersonalFields("dir", ("session", "path")),
    "sandbox.launch-requested": PersonalFields("workdir", ("argv",)),
    "sandbox.exited": PersonalFields("workdir", ("findings", "vanished")),
    "sandbox.denied": PersonalFields("workdir", ("argv", "message")),
    "sandbox.inspected": PersonalFields("projects", ("findings",)),
    "guard.denied": PersonalFields("root", ("path", "probable", "session")),
}

# Kinds whose personal fields a state keeps, for people to see.
SHOWN_BY_STATES = frozenset({"sandbox.launch-requested"})
