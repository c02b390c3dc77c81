"""The contract of the control plane that both sides of its listeners share: its paths, and a refusal as JSON."""

from omac.domain.kernel.refusal import Refusal

ROOT = "/__omac__/"
SCOPE_LISTENER = "omac.listener"  # in the ASGI scope: which listener a request came in by


def refusal_body(refusal: Refusal) -> dict[str, object]:
    """A refusal as the control plane says it: `error` is for people, `reason` for programs, `fix` can be pasted."""
    return {"error": refusal.message, "reason": refusal.reason, "fix": refusal.fix}
