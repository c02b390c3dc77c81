"""Cookies of a skill, confined to its mount: all skills answer at one host, and clients part cookies by path alone.

Attributes are read as clients read them (RFC 6265 section 5.2): parted at every semicolon, without case, the last Path
counts.
"""

ATTRIBUTES_MAX = 32  # of one cookie: clients know less than ten
_BLANKS = b" \t"


def confined(value: bytes, prefix: bytes, mount: bytes, folder: bytes) -> bytes | None:
    """Return a Set-Cookie value whose Path is `prefix` or below it, without Domain; None: it demands the whole host, or
    has more than ATTRIBUTES_MAX attributes, each of which takes time.

    `prefix` is the mount as the client addresses it, `/<token>/<mount>`; `mount` as the skill sees it, in
    X-Forwarded-Prefix: skills name paths with it, or as they get them. `folder` is that of the requested path below the
    mount, and counts where the skill names no path.
    """
    if value.count(b";") > ATTRIBUTES_MAX:
        return None
    pair, *attributes = value.split(b";")
    if pair.lstrip(_BLANKS).lower().startswith(b"__host-"):
        return None  # clients take such a cookie with `Path=/` only, and then send it to every skill
    kept = [pair.strip(_BLANKS)]
    path = b""
    for attribute in attributes:
        name, _, setting = attribute.partition(b"=")
        match name.strip(_BLANKS).lower():
            case b"path":
                path = setting.strip(_BLANKS)
            case b"domain":
                pass
            case _:
                kept.append(attribute.strip(_BLANKS))
    if not path.startswith(b"/"):
        path = folder if b";" not in folder else b""
    for named in (prefix, mount):
        if path == named or path.startswith(named + b"/"):
            path = path[len(named) :]
            break
    kept.append(b"Path=%b%b" % (prefix, path.rstrip(b"/")))
    return b"; ".join(kept)
