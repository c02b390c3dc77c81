"""The checkpoints that a witness keeps in a file."""

import io

from omac.journal.checkpoint import breaks_off, notes_in


def notes_of(text: str) -> tuple[list[str], int]:
    """The whole notes of a text, and how many break off."""
    notes = list(notes_in(io.StringIO(text)))
    whole = [note for note in notes if not breaks_off(note)]
    return whole, len(notes) - len(whole)
