"""The checkpoints that a witness keeps in a file."""

import io

from omac.journal.checkpoint import breaks_off, notes_in


def notes_of(text: str) -> tuple[list[str], int]:
    """Return the whole notes of a text, and the number of notes that break off."""
    notes = list(notes_in(io.StringIO(text)))
    whole = [note for note in notes if not breaks_off(note)]
    return whole, len(notes) - len(whole)
