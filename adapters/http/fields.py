"""Fields of a head: which names mean something to its reader, remembered in every spelling."""

from collections.abc import Callable, Mapping, Sequence

Fields = list[tuple[bytes, bytes]]
Values = Mapping[bytes, Sequence[bytes]]  # of fields, by their names in lower case

SPELLINGS_MAX = 4_096
SPELLING_BYTES_MAX = 64  # of one that is remembered


class FieldNames(dict[bytes, bytes]):
    """The names of certain fields: `names[spelling]` is the name in lower case, b"" for that of any other field.

    Clients spell the same few names again and again, so that each is judged once. Long ones are judged each time: of
    those, anybody could have megabytes remembered.
    """

    def __init__(self, is_meant: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._is_meant = is_meant

    def __missing__(self, spelling: bytes) -> bytes:
        lower = spelling.lower()
        name = lower if self._is_meant(lower) else b""
        if len(spelling) > SPELLING_BYTES_MAX:
            return name
        if len(self) >= SPELLINGS_MAX:
            self.clear()
        self[spelling] = name
        return name


def values_of(fields: Fields, names: FieldNames) -> Values:
    """Return the values of those fields that `names` names."""
    values: dict[bytes, list[bytes]] = {}
    for spelling, value in fields:
        if name := names[spelling]:
            values.setdefault(name, []).append(value)
    return values


def options_of(values: Values, name: bytes) -> set[bytes]:
    """Return the members of a comma-separated field over all its lines, in lower case (RFC 9110 section 5.6.1)."""
    lines = values.get(name, ())
    if len(lines) == 1 and b"," not in lines[0]:
        member = lines[0].strip(b" \t").lower()
        return {member} if member else set()
    return {member.strip(b" \t").lower() for line in lines for member in line.split(b",")} - {b""}
