"""domain/sandbox/hidden_names.py: the names of files that are hidden."""

import hashlib

import pytest

from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.hidden_names import MARKER, MARKER_OIDS, HiddenNames, check_pattern, is_env_file


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        (".env", True),
        (".env.local", True),
        (".env.example.local", True),
        (".envrc", True),
        (".envrc.private", True),
        (".env~", True),
        (".dev.vars.staging", True),
        (".env.example", False),
        (".env.production.template", False),
        (".envrc.sample", False),
        (".environment", False),
        ("env", False),
        (".environ.py", False),
    ],
)
def test_names_of_env_files(name: str, hidden: bool) -> None:
    """Env files are hidden, since secrets are kept in them by custom. A name that ends like an example's is not
    hidden."""
    assert is_env_file(name) is hidden


def test_patterns_match_whole_names() -> None:
    """A pattern matches a whole name as in a shell: `*` is any part, and `[...]` is one of these characters."""
    matches = HiddenNames(patterns=["*.pem", "id_[re]*"]).matches
    assert matches is not None
    assert [bool(matches(name)) for name in ("a.pem", "a.pem.txt", "id_rsa", "id_x", "A.PEM")] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert HiddenNames().matches is None


@pytest.mark.parametrize("pattern", ["", "*", "***", "a/b", "/", "."])
def test_what_is_no_pattern(pattern: str) -> None:
    """A pattern that would hide everything, or never anything, is refused."""
    with pytest.raises(Refusal, match="--deny-name"):
        check_pattern(pattern)


def test_the_markers_name_in_git() -> None:
    """The marker's object ids are those that git gives to a file with that text."""
    hashes = [hashed(b"blob %d\0%s" % (len(MARKER), MARKER)) for hashed in (hashlib.sha1, hashlib.sha256)]
    assert {each.digest_size: each.hexdigest() for each in hashes} == MARKER_OIDS
