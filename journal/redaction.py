"""Redaction: what an export leaves out, by kind or by personal field, and what it shows."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from omac.domain.kernel.refusal import Refusal
from omac.journal.event_kinds import KINDS, TOGETHER
from omac.journal.openings import Opening
from omac.journal.personal_fields import PERSONAL

ANY = "*"


class Redaction(NamedTuple):
    """`kinds` are left out as a whole, `fields` are the personal fields that are left out of a kind."""

    kinds: frozenset[str] = frozenset()
    fields: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, policy: Iterable[str]) -> "Redaction":
        """Return what a policy means: kinds, the first words of kinds, KIND.FIELD, or *.FIELD. Raises Refusal
        (misuse)."""
        kinds, fields = set[str](), set[tuple[str, str]]()
        for word in policy:
            if matching := [kind for kind in KINDS if word in _names_of(kind)]:
                kinds.update(matching)
                continue
            where, _, name = word.rpartition(".")
            pairs = {
                (kind, name)
                for kind, personal in PERSONAL.items()
                if name in personal.names and where in (ANY, *_names_of(kind))
            }
            if not pairs:
                raise _unknown(word)
            fields |= pairs
        return cls(frozenset(kinds), frozenset(fields))

    def leaves_out(self, kind: str, *, is_clear: bool) -> bool:
        """Return whether the whole content is left out: of an event that `is_clear` no field can be."""
        return kind in self.kinds or (is_clear and any(of == kind for of, _ in self.fields))

    def shown(self, kind: str, openings: Sequence[Opening]) -> tuple[Opening, ...]:
        """Return the personal fields of an event that are shown."""
        return tuple(opening for opening in openings if (kind, opening.name) not in self.fields)


def _names_of(kind: str) -> tuple[str, ...]:
    """Return the words that mean a kind."""
    return kind, kind.partition(".")[0], TOGETHER.get(kind, kind)


def _unknown(word: str) -> Refusal:
    message = (
        f"--redact takes kinds of events, such as access or secret.written, and their personal fields, such as "
        f"access.requested.path or *.path, not {word!r}"
    )
    names = sorted({name for personal in PERSONAL.values() for name in personal.names})
    return Refusal("misuse", message, fix=[f"--redact '*.{name}'" for name in names])
