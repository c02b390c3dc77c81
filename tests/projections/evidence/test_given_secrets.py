"""projections/evidence/given_secrets.py: the secrets that a sidecar gets, by name and fingerprint."""

import pytest
from msgspec.structs import replace

from omac.domain.sidecars.sidecar import SidecarSpec, Variable
from omac.projections.evidence.given_secrets import given_secrets, shown_secrets

STORED = Variable("TOKEN", secret=True, fingerprint="hmac:1", store="vault")
OF_HOST = Variable("KEY", None, "MY_KEY", secret=True)
MISSING = Variable("SPARE", secret=True)
SETTING = Variable("REGION", "eu", "MY_REGION")
SPEC = SidecarSpec("s", "s", "/w", "/w/s", "/w", "sha256:b", True, ("x",), digest="sha256:d")


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ((STORED,), "TOKEN (hmac:1) of the vault, given to sha256:d"),
        ((STORED, OF_HOST), "TOKEN (hmac:1) of the vault, KEY of the variable MY_KEY, given to sha256:d"),
        ((MISSING, SETTING), ""),
        ((), ""),
    ],
)
def test_secrets_are_shown(variables: tuple[Variable, ...], shown: str) -> None:
    """Stored secrets and variables of the host are shown; settings, and secrets without a value, are not."""
    assert shown_secrets(replace(SPEC, variables=variables)) == shown


def test_no_approval_no_secret() -> None:
    """A skill that nobody approved gets none."""
    assert list(given_secrets(replace(SPEC, approved=False, variables=(STORED, OF_HOST)))) == []
