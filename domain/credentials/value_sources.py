"""Asking: where each value of a skill comes from when a person registers it.

Rules, the first that applies

1. What the person gives with the command (a file, OMAC_SECRET_X, OMAC_CONFIG_X) is taken.
2. What was given to the skill here before is kept, unless asking again was asked for.
3. With `--defaults`, what is remembered for the name is adopted silently.
4. Kinds of values that were excluded (`--no-secrets`, `--no-fields`) are left alone.
5. A value that has a default of its own, or is optional, is asked for only without `--defaults`, and may be left out.
6. A required value is asked for, also with `--defaults`; where nobody can be asked, it is missing.
"""

from typing import Literal

import msgspec

Source = Literal["given", "keep", "default", "leave", "offer", "ask", "missing"]


class Wishes(msgspec.Struct, frozen=True):
    """The person's options for one kind of values. `can_ask`: a person is at a terminal."""

    defaults: bool = False
    again: bool = False
    exclude: bool = False
    can_ask: bool = True


class Field(msgspec.Struct, frozen=True):
    """The facts that decide the source of one value. `own`: the value has a default of its own, or the host has the
    variable that it names."""

    required: bool
    own: bool = False
    given: bool = False
    stored: bool = False
    remembered: bool = False


def source_of(field: Field, wishes: Wishes) -> Source:
    """Return the source of the value. "offer" is a question that may be left unanswered, "ask" a question that may
    not."""
    if field.given:
        return "given"
    if field.stored and not wishes.again:
        return "keep"
    if wishes.defaults and field.remembered:
        return "default"
    if wishes.exclude:
        return "leave"
    if field.own or not field.required:
        return "offer" if wishes.can_ask and not wishes.defaults else "leave"
    return "ask" if wishes.can_ask else "missing"
