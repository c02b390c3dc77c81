"""Commands of the host: inside a sandbox they would work on a state directory that vanishes with it, so they refuse."""

from collections.abc import Mapping

from omac.domain.kernel.refusal import Refusal

WORKS_INSIDE = (  # by their first words; all else needs the host's state
    ("help",),
    ("completion",),
    ("man",),
    ("version",),
    ("hook", "pre-tool-use"),
    ("hook", "role"),
    ("sandbox", "run"),  # which says itself what cannot be nested
    ("skill", "check"),
    ("skill", "new"),
    ("skill", "schema"),
)


def require_host(command: str, purpose: str, environment: Mapping[str, str]) -> None:
    """Refuse a command, such as "omac secrets set", inside a sandbox; `purpose` is the first sentence of its help.

    Arguments are not repeated: they may hold a value. Raises Refusal (inside-sandbox).
    """
    words = tuple(command.split()[1:])
    if environment.get("OMAC_SANDBOX") != "1" or any(words[: len(prefix)] == prefix for prefix in WORKS_INSIDE):
        return
    message = f"{command} does not work inside a sandbox. Run it on the host, where it does this: {purpose}"
    raise Refusal("inside-sandbox", message)
