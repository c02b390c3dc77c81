"""domain/credentials/value_sources.py: the source of each value, for every combination of sources."""

from itertools import product

from tables import failing

from omac.domain.credentials.value_sources import Field, Source, Wishes, source_of

BOTH = (False, True)
FIELDS = [Field(*bits) for bits in product(BOTH, repeat=5)]
WISHES = [Wishes(*bits) for bits in product(BOTH, repeat=4)]
EVERY = [(field, wishes) for field in FIELDS for wishes in WISHES]

# One line a case, the first that fits: required, own default, given, stored, remembered | --defaults, again, exclude,
# somebody to ask. "." fits both.
TABLE: tuple[tuple[str, Source], ...] = (
    ("..1.. ....", "given"),
    ("..01. .0..", "keep"),
    ("..0.1 1...", "default"),
    ("..0.. ..1.", "leave"),
    ("00... 0.01", "offer"),
    ("01... 0.01", "offer"),
    ("11... 0.01", "offer"),
    ("00... ..0.", "leave"),
    ("01... ..0.", "leave"),
    ("11... ..0.", "leave"),
    ("10... ..01", "ask"),
    ("10... ..00", "missing"),
)


def by_table(field: Field, wishes: Wishes, table: tuple[tuple[str, Source], ...] = TABLE) -> Source | None:
    """Return the source that the table names; None if no line fits."""
    values = (field.required, field.own, field.given, field.stored, field.remembered)
    wished = (wishes.defaults, wishes.again, wishes.exclude, wishes.can_ask)
    bits = "".join(str(int(bit)) for bit in (*values, *wished))
    fits = [
        source
        for form, source in table
        if all(want in (".", bit) for want, bit in zip(form.replace(" ", ""), bits, strict=True))
    ]
    return fits[0] if fits else None


def test_every_combination() -> None:
    """Each of the 512 combinations has the source that the table names."""
    assert len(EVERY) == 512
    for field, wishes in EVERY:
        assert source_of(field, wishes) == by_table(field, wishes), (field, wishes)


def test_each_line_of_the_table_is_needed() -> None:
    """Without any one line, the table names another source, or none, for some combination."""
    for number, line in enumerate(TABLE):
        shorter = TABLE[:number] + TABLE[number + 1 :]
        assert any(by_table(*every, shorter) != by_table(*every) for every in EVERY), line


def test_what_holds_always() -> None:
    """Only a user who is present is asked, only required values are missing, and only `--defaults` uses remembered
    values."""

    def check(field: Field, wishes: Wishes) -> None:
        source = source_of(field, wishes)
        if not wishes.can_ask:
            assert source not in ("ask", "offer")
        if source in ("ask", "missing"):
            assert field.required
            assert not field.own
        if source == "default":
            assert wishes.defaults
            assert field.remembered
        if wishes.exclude:
            assert source in ("given", "keep", "default", "leave")
        if source == "offer":
            assert not wishes.defaults

    assert failing(check, EVERY) == []


def test_the_second_project_asks_nothing() -> None:
    """A project with `--defaults` whose required values are all remembered needs no user to answer."""
    for field in FIELDS:
        if field.remembered or not field.required:
            assert source_of(field, Wishes(defaults=True, can_ask=False)) not in ("ask", "offer", "missing")
