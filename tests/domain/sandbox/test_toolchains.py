"""domain/sandbox/toolchains.py: the table of toolchains."""

from omac.domain.sandbox.environment import ORDINARY
from omac.domain.sandbox.toolchains import TOOLCHAINS, WITH_SHARED_BIN

REDIRECTED = {"CARGO_HOME", "GOPATH"}  # omac's tool cache, or nothing that a program needs inside


def test_the_table_is_one() -> None:
    """Each root once, below the home; what a row names is in it; variables that name roots reach programs inside."""
    roots = [one.root for one in TOOLCHAINS]
    assert len(set(roots)) == len(roots)
    assert not any(root.startswith("/") or ".." in root.split("/") for root in roots)
    assert {other for one in TOOLCHAINS for other in one.companions} | {*WITH_SHARED_BIN} <= set(roots)
    assert {one.variable for one in TOOLCHAINS if one.variable} - REDIRECTED <= set(ORDINARY)
