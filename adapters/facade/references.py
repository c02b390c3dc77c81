"""References in a skill's answer to itself, as its client must see them: with the token that the skill never sees.

A skill knows its paths from X-Forwarded-Prefix, `/<mount>`, and its own host and port. What refers to another place is
left as it is.
"""

import re

REFERRING = frozenset((b"location", b"content-location", b"link"))  # fields that hold references (RFC 9110, RFC 8288)

# a quoted parameter, in which < means nothing, or a target; one that does not end is taken to the end of the value, so
# that no part of it is read twice
_LINK_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)|<[^>]*+>?', re.DOTALL)


def referred(field: bytes, value: bytes, prefix: bytes, mount: bytes, port: int) -> bytes:
    """Return the value of a field of REFERRING, given in lower case, for the client.

    `prefix` is the mount as the client addresses it, `/<token>/<mount>`, `mount` as the skill sees it, `port` its own.
    """
    if field != b"link":
        return _reference(value, prefix, mount, port)

    def part(match: re.Match[bytes]) -> bytes:
        text = match[0]
        is_target = text.startswith(b"<") and text.endswith(b">")
        return b"<%b>" % _reference(text[1:-1].strip(), prefix, mount, port) if is_target else text

    return _LINK_PART.sub(part, value)


def _reference(value: bytes, prefix: bytes, mount: bytes, port: int) -> bytes:
    own = re.match(rb"(?i:http:)?//(?i:127\.0\.0\.1|localhost|\[::1\]):%d(?=[/?#]|\Z)" % port, value)
    path = value[own.end() :] if own else value
    if path == mount or path.startswith((mount + b"/", mount + b"?", mount + b"#")):
        return prefix + path[len(mount) :]
    if own is None or path == prefix or path.startswith(prefix + b"/"):
        return path
    return prefix + (path if path.startswith(b"/") else b"/" + path)
