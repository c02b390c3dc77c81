"""domain/sandbox/toolchains.py: the table of toolchains."""

from omac.domain.sandbox.environment import ORDINARY
from omac.domain.sandbox.toolchains import TOOLCHAINS, WITH_SHARED_BIN

REDIRECTED = {"CARGO_HOME", "GOPATH"}  # omac's tool cache, or nothing that a program needs inside


def test_the_table_is_one() -> None:
    """Each root is listed once and lies below the home. Companions are roots too, and variables that name roots pass
    into the sandbox."""
    roots = [row.root for row in TOOLCHAINS]
    assert len(set(roots)) == len(roots)
    assert not any(root.startswith("/") or ".." in root.split("/") for root in roots)
    assert {companion for row in TOOLCHAINS for companion in row.companions} | {*WITH_SHARED_BIN} <= set(roots)
    assert {row.variable for row in TOOLCHAINS if row.variable} - REDIRECTED <= set(ORDINARY)
