"""The secrets that a sidecar is given when it starts: their names and fingerprints, never a value."""

from collections.abc import Iterator

from omac.domain.sidecars.sidecar import SidecarSpec, Variable


def given_secrets(spec: SidecarSpec) -> Iterator[Variable]:
    """Yield the secrets that a sidecar gets when it starts: from a store, or from a variable of the host."""
    for variable in spec.variables:
        if spec.approved and variable.secret and (variable.fingerprint or variable.from_env):
            yield variable


def shown_secrets(spec: SidecarSpec) -> str:
    """Return the secrets that a sidecar gets, and the code that gets them; "" where it gets none."""
    given = ", ".join(map(_shown, given_secrets(spec)))
    return f"{given}, given to {spec.digest or spec.bundle_hash}" if given else ""


def _shown(secret: Variable) -> str:
    if secret.fingerprint:
        return f"{secret.name} ({secret.fingerprint}) of the {secret.store}"
    return f"{secret.name} of the variable {secret.from_env}"
