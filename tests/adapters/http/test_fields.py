"""adapters/http/fields.py: the names of fields that are cached."""

from omac.adapters.http.fields import SPELLING_BYTES_MAX, SPELLINGS_MAX, FieldNames


def test_each_spelling_is_judged_once() -> None:
    """Each spelling is judged once, and then stands for its name in lower case, or for an empty name if it is
    irrelevant."""
    judged: list[bytes] = []

    def is_meant(lower: bytes) -> bool:
        judged.append(lower)
        return lower == b"host"

    names = FieldNames(is_meant)
    for _ in range(2):
        assert [names[spelling] for spelling in (b"Host", b"HOST", b"X-Host")] == [b"host", b"host", b""]
    assert judged == [b"host", b"host", b"x-host"]


def test_what_is_remembered_is_bounded() -> None:
    """The cache of names is bounded in number and in bytes. Otherwise a caller could fill the memory with long
    names."""
    names = FieldNames(lambda lower: lower.startswith(b"x-"))
    for number in range(SPELLINGS_MAX + 10):
        assert names[b"X-%d-" % number + b"a" * SPELLING_BYTES_MAX]
        assert names[b"X-%d" % number]
    assert 0 < len(names) <= SPELLINGS_MAX
    assert max(map(len, names)) <= SPELLING_BYTES_MAX
