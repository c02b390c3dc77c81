"""omac's plugin as a file of its own in an agent's folder: made from that which `omac start` loads, and recognized."""

import hashlib
import json
import re

HEADER = "// Put here by `omac bridge install`; `omac bridge uninstall` removes it. sha256:"
_INSTALLED = 'const INSTALLED = ""'  # in the plugin as it is shipped
_FIRST_LINE = re.compile(re.escape(HEADER) + r"([0-9a-f]{64})\n")


def installed_form(source: str, hook: str) -> str:
    """Return the plugin with the command `hook` in it, below a line that has the hash of all that follows."""
    body = source.replace(_INSTALLED, f"const INSTALLED = {json.dumps(hook)}", 1)
    if body == source:
        raise ValueError("the plugin has no place for the command of its hooks")
    return f"{HEADER}{_hash(body)}\n{body}"


def plugin_state(text: str, current: str) -> str:
    """Return how a file has omac's plugin: "current", "outdated", "changed" by hand, or "foreign": not omac's."""
    if text == current:
        return "current"
    first = _FIRST_LINE.match(text)
    if first is None:
        return "changed" if text.startswith(HEADER) else "foreign"
    return "outdated" if first[1] == _hash(text[first.end() :]) else "changed"


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
